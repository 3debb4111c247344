"""`rainbow serve`: the server."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from rainbow.cli.database import url_of
from rainbow.errors import RainbowError

PORT = 8080


@click.command()
@click.option("--host", envvar="RAINBOW_HOST", default="127.0.0.1", show_default=True)
@click.option("--port", envvar="RAINBOW_PORT", type=click.IntRange(1, 65535), default=PORT, show_default=True)
@click.option("--database", envvar="RAINBOW_DATABASE", help="A URL; else rainbow.db beside the configuration.")
@click.option(
    "--config",
    envvar="RAINBOW_CONFIG",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The configuration file (YAML).",
)
@click.option(
    "--scheduler/--no-scheduler",
    " /--no-loop",
    default=True,
    show_default=True,
    help="Step the clusters here too; if nobody does, `rainbow scheduler step` takes steps by hand.",
)
def serve(host: str, port: int, database: str | None, config: Path | None, scheduler: bool) -> None:
    """Serve the API until a signal comes."""
    _check_address(host, port)
    from rainbow.api.server import serve as serve_api  # flask and the database are the server's alone

    url = url_of(database, config)
    serve_api(host, port, url, str(config) if config else None, scheduler=scheduler)


def _check_address(host: str, port: int) -> None:
    """Try the address, so that one that is taken is said in a line before anything is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does
            one.bind((host, port))
    except OSError as fault:
        raise RainbowError(f"cannot listen on {host}:{port}: {fault.strerror}") from fault
