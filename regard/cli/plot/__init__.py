"""`regard plot`: one command for each picture."""
