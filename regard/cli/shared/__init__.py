"""What several commands share: options for models and searches, reading input lines, help texts."""
