"""The training loop: its step, captured graphs, compiled parts, pending losses and reports."""
