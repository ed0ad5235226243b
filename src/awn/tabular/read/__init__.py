"""Reading: files, column names, cell values and the target column."""
