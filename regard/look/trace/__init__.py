"""Traces: everything a model did with one text, as data."""
