"""The scenes of a lecture as slides: one HTML file, or a PDF."""
