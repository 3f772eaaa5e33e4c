"""Tasks whose input is an image, a video, a series or a recording."""
