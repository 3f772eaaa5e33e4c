"""What attention heads do: statistics, and switching heads off."""
