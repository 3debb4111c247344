"""Accounts: who may use how much, where each user is, and what a submit holds."""
