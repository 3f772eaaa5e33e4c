"""Pictures of attention over images, videos, series and recordings."""
