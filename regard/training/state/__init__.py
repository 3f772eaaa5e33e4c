"""What training changes from step to step: weights, optimizer, moving average, progress; and its tensors by name."""
