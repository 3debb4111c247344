"""Stored jobs: their lifecycle, suspension, losses and dependencies."""
