"""Training in several processes. Nothing here knows about widths."""
