"""What is shown: tables for people, JSON for programs, and never what a terminal would take for a command."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rainbow.cli.tables import Listing

UNBOUNDED = 200  # columns, where there is no terminal to say how many it has
NARROWEST = 40  # an id is told whole, in however narrow a terminal
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
    made = Console(width=width, markup=False, emoji=False, highlight=False, file=sys.stdout)
    made.width = max(made.width, NARROWEST)
    return made


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, wraps: bool = False) -> Listing:
    """Return a table; numbers stand to the right, states have colours; `wraps`: every text, not the last alone."""
    rows = list(rows)
    right = {column for column in range(len(titles)) if rows and all(_is_number(row[column]) for row in rows)}
    return Listing(titles, [[cell(value) for value in row] for row in rows], frozenset(right), wraps)


def facts(pairs: Mapping[str, Any]) -> Table:
    """Return a list of names and what they are."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")  # a secret that is told once is told whole
    for name, value in pairs.items():
        drawn.add_row(Text(name, style="bold"), cell(value))
    return drawn


def cell(value: Any) -> Text:
    """Return one value as it is shown."""
    text = clean(words(value))
    return Text(text, style=STYLES.get(text, ""))


def words(value: Any) -> str:
    """Return a value in words.

    >>> words({"node": 2, "core": 8}), words(["a", "b"]), words(None), words(True), words(7.776e6)
    ('node 2, core 8', 'a, b', '-', 'yes', '7776000')
    """
    if value is None or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(words(one) for one in value)
    return str(value)


def _number(value: float) -> str:
    """Write a number without an exponent, as far as it says something."""
    if value.is_integer():
        return str(int(value))
    return f"{value:.3f}".rstrip("0").rstrip(".") if 1000 < abs(value) < math.inf else f"{value:g}"


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
