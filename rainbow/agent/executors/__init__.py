"""Executors: they start tasks for an agent."""
