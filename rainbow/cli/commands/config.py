"""`rainbow config`: init, check, view, reload."""

from __future__ import annotations

from dataclasses import asdict
from importlib import resources
from pathlib import Path

import click

from rainbow.cli.input.files import naming
from rainbow.cli.output import printer
from rainbow.cli.session import with_tokens
from rainbow.client import Client
from rainbow.errors import Conflict


@click.group()
def config() -> None:
    """The server's configuration file: init, check, view, reload."""


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@printer.output_option
def check(file: Path, output: str) -> None:
    """Check FILE for errors and for settings the server would ignore."""
    from rainbow.service.core.settings import read_config

    with naming(file):
        settings = asdict(read_config(file))
    shown = {key: value for key, value in settings.items() if key not in ("secret", "admin", "warnings", "limits")}
    found = {**shown, "warnings": list(settings["warnings"])}
    for warning in found["warnings"]:
        click.echo(f"rainbow: warning: {printer.one_line(warning)}", err=True)
    printer.show(output, found, lambda console: console.print(printer.facts(shown)))


@config.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=Path("rainbow.yaml"))
def init(file: Path) -> None:
    """Write a commented configuration FILE with every setting at its default. Never overwrites a file."""
    text = resources.files("rainbow.service").joinpath("rainbow.yaml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise Conflict(f"{file} already exists; not overwritten") from None
    click.echo(f"wrote {file} with every setting at its default")


@config.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@printer.output_option
def view(file: Path | None, output: str) -> None:
    """Show the effective settings of a server started with FILE. Secrets are hidden."""
    from rainbow.service.core.settings import Settings, read_config

    settings = asdict(read_config(file) if file else Settings())
    hidden = {key: "set" if settings.pop(key) else "generated on first start" for key in ("secret", "admin")}
    settings.pop("warnings")
    rows = {**{key: value for key, value in settings.items() if not isinstance(value, dict)}, **hidden}
    for section in ("limits", "admission", "server"):
        rows |= {f"{section}.{key}": value for key, value in settings[section].items()}
    printer.show(output, {**settings, **hidden}, lambda console: console.print(printer.facts(rows)))


@config.command()
@printer.output_option
@with_tokens
def reload(client: Client, output: str) -> None:
    """Make the server reload its configuration file now. If the file is invalid, nothing changes. Requires the admin
    token.
    """
    told = client.reload_config()
    for warning in told.pop("warnings"):
        click.echo(f"rainbow: warning: {printer.one_line(warning)}", err=True)
    printer.show(output, told, lambda console: console.print(printer.facts(told)))
