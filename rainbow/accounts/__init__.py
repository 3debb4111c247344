"""Accounts: the limits of use over all clusters. Values and pure functions; store and service do the rest."""
