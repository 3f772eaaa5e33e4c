"""The exercises, one folder per lecture topic and one file per exercise."""
