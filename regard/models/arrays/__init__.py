"""Networks whose input is no text: images, videos, series and recordings."""
