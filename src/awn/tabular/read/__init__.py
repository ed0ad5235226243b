"""Reading tables: delimited text, Parquet, the target column."""
