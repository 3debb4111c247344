"""Alembic's entry: run the migrations on the connection that `upgrade.upgrade` opened."""

from __future__ import annotations

from typing import Any

from alembic import context

from rainbow.store.schema import metadata

attributes = context.config.attributes


def note(step: Any) -> None:
    """Note that a migration has been run: where one fails, it is the next."""
    attributes["applied"].append(step.up_revision_id)


context.configure(
    connection=attributes["connection"],
    target_metadata=metadata,
    on_version_apply=lambda ctx, step, heads, run_args: note(step),
)
with context.begin_transaction():
    context.run_migrations()
