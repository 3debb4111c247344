"""A cluster's scheduling as people read it: policy and settings, then every table of its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from rainbow.cli import printing

MOST, ALWAYS = 20, 3  # lines of a list; columns of it that are shown whatever they say
TITLES = ["CLASS", "LOAD %", "RUNNING", "WAITING", "ENTITLEMENT", "LOANED", "UNUSED"]
COLUMNS = ["percent", "running", "waiting", "target", "loaned", "unused"]


def draw_scheduling(console: Console, found: Mapping[str, Any]) -> None:
    """Draw the table of the founding text with the numbers of the moment."""
    figures = dict(found["figures"])
    classes = figures.pop("classes", {}) if found["policy"] == "load_based" else {}
    tables = {name: figures.pop(name) for name in list(figures) if _alike(figures[name])}
    lists = {name: figures.pop(name) for name in list(figures) if _listed(figures[name])}
    rest = {key: value for key, value in found.items() if key not in ("figures", "settings", "limits", "warnings")}
    console.print(printing.facts({**rest, **found.get("settings", {}), **found.get("limits", {}), **figures}))
    if classes:
        rows = [[name, *(row[column] for column in COLUMNS)] for name, row in classes.items()]
        console.print()
        console.print(printing.table(TITLES, rows))
    for name, part in tables.items():
        _draw_part(console, name, part)
    for name, lines in lists.items():
        _draw_list(console, name, lines)
    for warning in found.get("warnings", []):
        text = f"{warning['requestor']} is of class {warning['class']}; {', '.join(warning['also'])} match too"
        console.print(printing.clean(f"warning: {text}"))


def _draw_part(console: Console, name: str, part: Mapping[str, Mapping[str, Any]]) -> None:
    titles = list(next(iter(part.values())))
    console.print()
    console.print(printing.table([name, *titles], [[key, *line.values()] for key, line in part.items()]))


def _alike(part: Any) -> bool:
    """Whether something is a mapping of lines that have the same columns."""
    lines = list(part.values()) if isinstance(part, Mapping) else []
    return bool(lines) and all(isinstance(line, Mapping) and list(line) == list(lines[0]) for line in lines)


def _draw_list(console: Console, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draw the first lines of a list; after the first columns, what is 0 in every line says nothing."""
    shown = lines[:MOST]
    every = list(dict.fromkeys(title for line in shown for title in line))
    titles = [title for k, title in enumerate(every) if k < ALWAYS or any(line.get(title) for line in shown)]
    console.print()
    console.print(f"{printing.clean(name)}:", style="bold")
    console.print(printing.table(titles, [[line.get(title) for title in titles] for line in shown]))
    if len(lines) > MOST:
        console.print(f"and {len(lines) - MOST} more")


def _listed(part: Any) -> bool:
    """Whether something is a list of mappings."""
    return isinstance(part, list) and bool(part) and all(isinstance(line, Mapping) for line in part)
