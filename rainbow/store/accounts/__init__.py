"""Accounts in the store: the tree, what was used, and budgets."""
