"""What models are made of: embeddings, normalisation, feed-forward and recurrent layers, and the block."""
