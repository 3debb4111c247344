"""Accounts: who may use how much, where everybody stands, and what a submit holds."""
