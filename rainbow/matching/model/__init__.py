"""Verdicts, a cluster's layout, budgets, and conditions on workers."""
