"""Networks whose input is no text: images and series of numbers."""
