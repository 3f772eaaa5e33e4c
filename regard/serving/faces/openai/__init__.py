"""OpenAI's API for language models and sentence encoders: models, completions, chat completions and embeddings."""
