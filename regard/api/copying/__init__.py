"""Models that copy from a text: a Summarizer and an Answerer."""
