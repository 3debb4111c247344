"""`rainbow config`: check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from rainbow.cli import printing
from rainbow.cli.reading import naming


@click.group()
def config() -> None:
    """The server's configuration file: check."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@printing.output_option
def check(file: Path, output: str) -> None:
    """Say whether the server would start with FILE, and what it would not read."""
    from rainbow.service.config import read_config

    with naming(file):
        settings = asdict(read_config(file))
    shown = {key: value for key, value in settings.items() if key not in ("secret", "admin", "warnings", "limits")}
    found = {**shown, "warnings": list(settings["warnings"])}
    for warning in found["warnings"]:
        click.echo(f"rainbow: warning: {printing.one_line(warning)}", err=True)
    printing.show(output, found, lambda console: console.print(printing.facts(shown)))
