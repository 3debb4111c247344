"""The forms of an answer: tables for people that fit the terminal; JSON, YAML, CSV and names for programs.

table  as wide as the terminal     json, yaml  all that the server answered
wide   nothing is cut              csv         a row each      name  what other commands call it, one a line

Columns that are too wide shrink in this order: the last one wraps; free text in the middle is cut with an ellipsis;
the last one goes below its row; times, states and numbers are cut. Ids, and the first column, never are.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

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

FORMS = ("table", "wide", "json", "yaml", "csv", "name")
DRAWN = ("table", "wide")  # for people
WIDE = 100_000  # columns: nothing is cut
# what names an entry for other commands, the first that it has; a job's number before its id, an id before a name
NAMING = ("element", "number", "id", "name", "job", "group", "cluster", "worker", "code")
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMS),
    metavar="FORM",
    default="table",
    envvar="RAINBOW_OUTPUT",
    help=f"Form of the answer: {', '.join(FORMS[:-1])} or {FORMS[-1]}.",
)

# of a submit: what is none of the forms is the file that the job's output goes to, as sbatch has it
answer_or_file_option = click.option(
    "-o",
    "--output",
    metavar="FORM|FILE",
    multiple=True,
    envvar="RAINBOW_OUTPUT",
    help=f"Form of the answer ({', '.join(FORMS)}), or the file of the job's output. May come twice.",
)


def show(
    output: str,
    value: Any,
    drawn: Facts | Listing | str | Callable[[Console], None],
    rows: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Print `value` in a form for programs; for people, print what is drawn of it, or let a function draw it.

    `rows` are the entries of CSV and names where the value is not itself a list, or one entry.
    """
    if output in DRAWN:
        on = console(wide=output == "wide")
        if callable(drawn):
            drawn(on)
        else:
            on.print(drawn)
    elif output == "json":
        click.echo(json.dumps(value, indent=2))
    elif output == "yaml":
        import yaml  # few want it: the others need not wait for it

        click.echo(yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True), nl=False)
    else:
        entries = rows if rows is not None else [value] if isinstance(value, Mapping) else list(value)
        _write_names(entries) if output == "name" else _write_entries(entries)


def _write_names(entries: Iterable[Mapping[str, Any]]) -> None:
    for entry in entries:
        known = next((entry[key] for key in NAMING if entry.get(key)), next(iter(entry.values()), ""))
        click.echo(one_line(str(known)))


def _write_entries(entries: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    write_fields(names, [[_field(entry.get(name)) for name in names] for entry in entries])


def _field(value: Any) -> str:
    """Return a value of a document as a field of CSV: what has parts as JSON."""
    if value is None or isinstance(value, str):
        return clean(value or "")
    return json.dumps(value, ensure_ascii=False)


def write_fields(
    titles: Sequence[str], rows: Iterable[Sequence[str]], delimiter: str = ",", *, header: bool = True
) -> None:
    """Write rows of fields with a delimiter between them, quoted where they hold it."""
    into = io.StringIO()
    writer = csv.writer(into, delimiter=delimiter, lineterminator="\n")
    writer.writerows([titles, *rows] if header else rows)
    click.echo(into.getvalue(), nl=False)


def console(*, wide: bool = False) -> Console:
    """Return what tables are drawn on. NO_COLOR is minded; what users wrote is never taken for markup."""
    width = WIDE if wide else None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNBOUNDED
    made = Console(width=width, markup=False, emoji=False, highlight=False, file=sys.stdout)
    made.width = max(made.width, NARROWEST)
    return made


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, wraps: bool = False) -> Listing:
    """Return a table; numbers are on the right, states have colors; `wraps`: every text, not the last alone."""
    rows = list(rows)
    right = {column for column in range(len(titles)) if rows and all(_is_number(row[column]) for row in rows)}
    return Listing(titles, [[cell(value) for value in row] for row in rows], frozenset(right), wraps)


def without_titles(listing: Listing) -> Listing:
    """Return a table without the line of titles."""
    return replace(listing, header=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are, below each other."""

    pairs: Sequence[tuple[str, Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw them: values wrap beside their names, and no line ends with blanks that a program would read."""
        width = max((cell_len(name) for name, _ in self.pairs), default=0)
        beside = width + GAP < options.max_width  # else values are below their names
        columns = options.max_width - width - GAP if beside else options.max_width
        for name, value in self.pairs:
            head = Text(name, style="bold")
            if not beside:
                yield from map(_stripped, head.wrap(console, options.max_width, overflow="fold"))
                yield from map(_stripped, value.wrap(console, columns, overflow="fold"))
                continue
            # a secret that is told once is told whole
            for line in [*value.wrap(console, columns, overflow="fold")] or [Text()]:
                head.align("left", width + GAP)
                yield _stripped(head + line)
                head = Text()


def facts(pairs: Mapping[str, Any]) -> Facts:
    """Return a list of names and what they are."""
    return Facts([(clean(name), cell(value)) for name, value in pairs.items()])


CLUSTER_WIDE = "cluster-wide"  # where resources of no worker are, such as licenses


def amounts(options: Mapping[str, int], units: Mapping[str, str]) -> dict[str, Any]:
    """Return amounts that are not 0, those with a base unit in words.

    >>> amounts({"cores": 4, "gpus": 0, "memory": 500_000_000}, {"memory": "B"})
    {'cores': 4, 'memory': '500 MB'}
    """
    from rainbow.jobspec.quantities import in_words  # reads jobspecs: most commands write no amounts

    return {key: in_words(n, units[key]) if key in units else n for key, n in options.items() if n}


def held(one: Mapping[str, Any], units: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what a task or a reservation holds of each worker, in words."""
    return {worker or CLUSTER_WIDE: amounts(some, units or {}) for worker, some in one["placement"].items()}


def totals(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the totals of a cluster that is shown, those with a base unit in words."""
    return amounts(shown["totals"], shown.get("units") or {})


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


GAP, INDENT = 2, 4  # columns between two cells, and before what stands below its row
FREE, KEPT, WHOLE = range(3)  # is cut soon; late; never
ID = re.compile(r"[0-9a-f]{12,}|-")
PLAIN = re.compile(
    r"[A-Z_]+|\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?|(\d+-)?\d\d:\d\d(:\d\d)?|[\d.]+/?\d*"
    r"|up|drained|being deleted|no agent seen|-"
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows under titles. `right` are the columns of numbers; `wraps`: no text is cut but for single words."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]
    right: frozenset[int]
    wraps: bool = False
    header: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw it as wide as it may be."""
        ranks = [self._rank(column) for column in range(len(self.titles))]
        natural = [max(map(cell_len, self._lines(column)), default=0) for column in range(len(self.titles))]
        words = [self._least(column) for column in range(len(self.titles))]
        widths = fitted(natural, ranks, options.max_width, words)
        head = [Text(title, style="bold") for title in self.titles]
        if len(widths) < len(head) and not any(row[-1].plain for row in self.rows):
            head[-1] = Text()  # nothing is below any row
        if self.header:
            yield from self._drawn(head, widths, console, options)
        for row in self.rows:
            yield from self._drawn(row, widths, console, options)

    def least(self) -> int:
        """Return the width below which a title, an id, a state or a time would be cut."""
        widths = [
            max(map(cell_len, self._lines(column)), default=0) if self._rank(column) != FREE else self._least(column)
            for column in range(len(self.titles))
        ]
        return _total(widths)

    def _lines(self, column: int) -> Iterator[str]:
        if self.header:
            yield self.titles[column]
        for row in self.rows:
            yield from row[column].plain.splitlines()

    def _least(self, column: int) -> int:
        """Return the width of the title, which is never cut, or of the longest word where texts wrap."""
        if not self.wraps:
            return cell_len(self.titles[column]) if self.header and column < len(self.titles) - 1 else 0
        return max((cell_len(word) for line in self._lines(column) for word in line.split()), default=0)

    def _rank(self, column: int) -> int:
        texts = [row[column].plain for row in self.rows]
        if column == 0 or all(map(ID.fullmatch, texts)):
            return WHOLE
        return KEPT if all(map(PLAIN.fullmatch, texts)) else FREE

    def _drawn(
        self, row: Sequence[Text], widths: Sequence[int], console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        """Draw one row: a line, more where a cell wraps, and the last cell below if there is no room beside."""
        beside = len(widths) == len(row)
        columns = [self._cell(row[k], k, width, console) for k, width in enumerate(widths)]
        for k in range(max(map(len, columns))):
            line = [column[k] if k < len(column) else Text(" " * widths[j]) for j, column in enumerate(columns)]
            yield _stripped(Text(" " * GAP).join(line))
        below = [] if beside else _wrapped(row[-1], max(options.max_width - INDENT, 1), console)
        for under in below:
            if under.plain:
                yield _stripped(Text(" " * INDENT) + under)

    def _cell(self, cell: Text, column: int, width: int, console: Console) -> list[Text]:
        if column == len(self.titles) - 1 or (self.wraps and self._rank(column) == FREE):
            return [self._aligned(line, column, width) for line in _wrapped(cell, width, console)]
        return [self._cut(cell, column, width)]

    def _cut(self, cell: Text, column: int, width: int) -> Text:
        cut = Text(" ".join(cell.plain.splitlines()), style=cell.style)
        cut.truncate(width, overflow="ellipsis")
        return self._aligned(cut, column, width)

    def _aligned(self, cell: Text, column: int, width: int) -> Text:
        cell.align("right" if column in self.right else "left", width)
        return cell


def fitted(natural: Sequence[int], ranks: Sequence[int], room: int, words: Sequence[int] = ()) -> list[int]:
    """Return the widths of the columns; without one for the last if that is below its row.

    `words`: what the columns have at least; they may be wider than the room together.

    >>> fitted([24, 10, 60], [WHOLE, FREE, FREE], 80)
    [24, 10, 42]
    >>> fitted([24, 20, 9, 19, 60], [WHOLE, FREE, KEPT, KEPT, FREE], 80)
    [24, 20, 9, 19]
    """
    widths, last = list(natural), len(natural) - 1
    middle = {column for column in range(last) if ranks[column] == FREE}
    own = {last} if ranks[last] == FREE else set()
    for columns, least in ((own, 30), (middle, 12), (own, 16)):
        _narrow(widths, columns, least, room, words)
    if own and last and _total(widths) > room:
        widths = list(natural[:-1])
        _narrow(widths, middle, 12, room, words)
    stored = {column for column in range(len(widths)) if ranks[column] == KEPT}
    for columns, least in ((middle, 6), (stored, 10), (middle | stored, 2)):
        _narrow(widths, columns, least, room, words)
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _narrow(widths: list[int], columns: set[int], least: int, room: int, words: Sequence[int] = ()) -> None:
    """Narrow the widest of some columns until all fit, or they have no more than `least` and their longest word."""
    floors = {column: max(least, words[column] if words else 0) for column in columns}
    while _total(widths) > room and (wide := [column for column in columns if widths[column] > floors[column]]):
        widths[max(wide, key=lambda column: widths[column])] -= 1


def _wrapped(cell: Text, width: int, console: Console) -> list[Text]:
    return list(cell.wrap(console, width, overflow="ellipsis")) or [Text()]


def _stripped(line: Text) -> Text:
    line.rstrip()
    line.no_wrap, line.overflow = True, "ignore"  # an id is whole even where the terminal is narrower
    return line
