"""The workers of a cluster under use."""
