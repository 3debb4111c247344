"""What operators set of the priority policy."""
