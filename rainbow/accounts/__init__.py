"""Accounts: who may use how much over all clusters. Values and pure functions; store and service do the rest."""
