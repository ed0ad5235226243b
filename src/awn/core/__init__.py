"""Units, widths, gates, groups and resizing: the method itself."""
