"""Carry numbers, dates, web addresses and names from source to target, each as one placeholder."""
