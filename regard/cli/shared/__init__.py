"""What several commands share: model options and reading input lines."""
