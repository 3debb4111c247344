"""What is shown: tables for people, JSON for programs, and never what a terminal would take for a command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNBOUNDED = 200  # columns, where there is no terminal to say how many it has
STYLES = {
    "COMPLETED": "green",
    "RUNNING": "cyan",
    "WAITING": "yellow",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "CANCELED": "magenta",
    "READY": "green",
    "LOST": "red",
}

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    envvar="RAINBOW_OUTPUT",
    help="Tables for people (the default) or JSON for programs.",
)


def show(output: str, value: Any, draw: Callable[[Console], None]) -> None:
    """Print `value` as JSON, or let `draw` show it to people."""
    if output == "json":
        click.echo(json.dumps(value, indent=2))
    else:
        draw(console())


def console() -> Console:
    """Return what tables are drawn on. NO_COLOR is minded; what users wrote is never taken for markup."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNBOUNDED
    return Console(width=width, markup=False, emoji=False, highlight=False, file=sys.stdout)


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table; numbers stand to the right, states have colours.

    The first column is never cut: it holds what the next command is called with.
    """
    rows = list(rows)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column, title in enumerate(titles):
        numeric = bool(rows) and all(_is_number(row[column]) for row in rows)
        drawn.add_column(title, justify="right" if numeric else "left", no_wrap=column == 0, overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(value) for value in row))
    return drawn


def facts(pairs: Mapping[str, Any]) -> Table:
    """Return a list of names and what they are."""
    drawn = Table.grid(padding=(0, 2))
    for name, value in pairs.items():
        drawn.add_row(Text(name, style="bold"), cell(value))
    return drawn


def cell(value: Any) -> Text:
    """Return one value as it is shown."""
    text = clean(words(value))
    return Text(text, style=STYLES.get(text, ""))


def words(value: Any) -> str:
    """Return a value in words.

    >>> words({"node": 2, "core": 8}), words(["a", "b"]), words(None), words(True), words(0.5)
    ('node 2, core 8', 'a, b', '-', 'yes', '0.5')
    """
    if value is None or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(words(one) for one in value)
    return str(value)


def clean(text: str) -> str:
    r"""Return text without control characters: a terminal would obey them.

    >>> clean("a\x1b[31mb\nc")
    'a\\x1b[31mb\nc'
    """
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Return text as a single clean line."""
    return clean(" ".join(text.split()))


def when(moment: str | float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time (RFC 3339, or seconds since 1970) as local time, to the second."""
    if moment is None:
        return "-"
    at = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else datetime.fromisoformat(moment)
    return at.astimezone().strftime(form)


def minute(moment: str | float | None) -> str:
    """Return a time as local time, to the minute."""
    return when(moment, "%Y-%m-%d %H:%M")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
