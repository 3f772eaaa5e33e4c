"""Decoding on a CPU: quantised and repacked weights, and a decoder step in C."""
