"""Clusters come, change and go; how each is scheduled, and what is reserved there in advance."""
