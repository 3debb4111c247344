"""Queries: jobs listed and explained, plans and figures shown."""
