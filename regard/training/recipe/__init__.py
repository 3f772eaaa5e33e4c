"""Whole recipes: the tables of `regard/recipes` put together and checked against their task, read from TOML or made
for given files, and completed with defaults chosen from the data and the machine.
"""
