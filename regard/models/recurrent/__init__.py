"""Recurrent encoder-decoders and their layers."""
