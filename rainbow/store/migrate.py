"""Bringing a database up to date: Alembic, run from inside the program."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(engine: sa.Engine) -> None:
    """Run every migration the database has not had; all of them or, after an error, none."""
    with engine.begin() as connection:
        command.upgrade(configuration(connection), "head")


def configuration(connection: sa.Connection) -> Config:
    """Return Alembic's configuration for this connection, without a file."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
