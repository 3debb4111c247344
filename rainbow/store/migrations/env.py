"""Alembic's entry: run the migrations on the connection that `engine.upgrade` opened."""

from __future__ import annotations

from alembic import context

from rainbow.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
