"""The language of expressions about a cluster."""
