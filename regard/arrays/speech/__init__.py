"""Speech: from WAV files to log-mel frames to batches."""
