"""Write regard's models in the formats of other tools; exporting.py has the list."""
