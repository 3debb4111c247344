"""Alembic's migrations of the tables, and what runs them."""
