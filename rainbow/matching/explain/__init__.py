"""Explanations of a verdict: request by request, and the smallest change that would match."""
