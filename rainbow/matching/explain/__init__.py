"""What a verdict leaves unsaid."""
