"""The search for a place in one cluster."""
