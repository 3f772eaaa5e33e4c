"""From batches to weights: recipes, the loop, its loss and schedule, checkpoints."""
