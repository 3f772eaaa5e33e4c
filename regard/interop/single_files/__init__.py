"""Models of other libraries in one file, with what lies beside it; recognize.py finds the format by the content."""
