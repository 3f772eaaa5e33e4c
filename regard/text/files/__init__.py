"""Read text files: plain, compressed, tabular, JSON lines and Parquet."""
