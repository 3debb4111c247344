"""Clusters: registration, graphs, scheduling settings, tokens, and removal."""
