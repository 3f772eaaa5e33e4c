"""Solutions about recurrent networks (C)."""
