"""`rainbow db`: upgrade, backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rainbow.errors import Conflict

NEW_FILE = click.Path(dir_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def url_of(database: str | None, config: Path | None) -> str:
    """Return the URL of the store: as given, else the file beside the configuration."""
    folder = config.parent if config else Path()
    return database or f"sqlite:///{(folder / 'rainbow.db').absolute()}"


def store_options(command: Any) -> Any:
    """Give a command the options that say where the store is."""
    for option in (
        click.option("--config", envvar="RAINBOW_CONFIG", type=FILE, help="The configuration file (YAML)."),
        click.option(
            "--database", envvar="RAINBOW_DATABASE", help="A URL; else rainbow.db beside the configuration."
        ),
    ):
        command = option(command)
    return command


@click.group()
def db() -> None:
    """The store: upgrade, backup, restore."""


@db.command()
@store_options
def upgrade(database: str | None, config: Path | None) -> None:
    """Bring the store's tables up to date (the server does so too when it starts)."""
    from rainbow.store import open_store  # the database is the server's alone

    open_store(url_of(database, config)).close()
    click.echo("the store is up to date")


@db.command()
@click.argument("file", type=NEW_FILE)
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
@store_options
def backup(file: Path, force: bool, database: str | None, config: Path | None) -> None:
    """Write the store as it is at this moment to FILE (SQLite), while the server works."""
    from rainbow.store import open_store
    from rainbow.store.backup import backup as write

    if file.exists() and not force:
        raise Conflict(f"there is a file {file} already (--force replaces it)")
    store = open_store(url_of(database, config))
    try:
        write(store, file)
    finally:
        store.close()
    click.echo(f"{file}: {file.stat().st_size:,} bytes")


@db.command()
@click.argument("file", type=FILE)
@store_options
def restore(file: Path, database: str | None, config: Path | None) -> None:
    """Fill an empty store from a backup; the store may be of the other kind."""
    from rainbow.store.backup import restore as read

    read(file, url_of(database, config))
    click.echo(f"restored from {file}")
