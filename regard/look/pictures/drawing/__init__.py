"""What pictures are drawn with: figures, fonts, colours, and boxes with arrows."""
