"""Memory and time: what a training needs before it starts, and what happens when memory runs out."""
