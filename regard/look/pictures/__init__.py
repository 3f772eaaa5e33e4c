"""Pictures with matplotlib and in the terminal."""
