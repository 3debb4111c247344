"""Certificates of placements: how they are written, and the checker, which shares nothing with the search."""
