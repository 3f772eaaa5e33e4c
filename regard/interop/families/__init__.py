"""A family of foreign models each: its settings and its table of weights. family.py has what they share."""
