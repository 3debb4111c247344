"""Lists with chosen columns: in the forms of printer.py, or as fields with a bar between."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from rainbow.cli.output import printer
from rainbow.text import meant

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in --format, its title, and what it shows of a row."""

    name: str
    title: str
    value: Callable[[Document], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a list is written: its columns with their widths (0: as wide as it must be), and the form."""

    columns: Sequence[tuple[Column, int]]
    output: str
    header: bool = True
    chosen: bool = False  # the caller named the columns
    bars: bool = False  # fields divided by |
    spare: Sequence[str] = ()  # columns that a narrow terminal does without, the first of these first

    def write(self, rows: Sequence[Document]) -> None:
        """Write the rows to stdout; JSON without a choice of columns is what the API answers."""
        cells = [[column.value(row) for column, _ in self.columns] for row in rows]
        if self.output == "csv" or self.bars:
            names, fields = [column.name for column, _ in self.columns], [list(map(_field, row)) for row in cells]
            printer.write_fields(names, fields, "|" if self.output != "csv" else ",", header=self.header)
        elif self.output not in printer.DRAWN:
            named = [{column.name: _plain(column.value(row)) for column, _ in self.columns} for row in rows]
            plain = self.output == "name" or not self.chosen
            printer.show(self.output, list(rows) if plain else named, "")
        elif any(width for _, width in self.columns):
            self._cut(cells)
        else:
            self._table(cells)

    def _table(self, cells: Sequence[Sequence[Any]]) -> None:
        """Draw a table; columns not named by the caller are left out where they have no room."""
        console, shown = printer.console(wide=self.output == "wide"), list(range(len(self.columns)))
        names = [column.name for column, _ in self.columns]
        for spare in ("", *(() if self.chosen else self.spare)):
            shown = [k for k in shown if names[k] != spare]
            table = printer.table(
                [self.columns[k][0].title for k in shown], [[row[k] for k in shown] for row in cells]
            )
            if table.least() <= console.width:
                break
        console.print(table if self.header else printer.without_titles(table))

    def _cut(self, cells: Iterable[Sequence[Any]]) -> None:
        """Write columns of fixed widths, as sacct does: %N cuts, %-N writes to the left."""
        head = [[column.title for column, _ in self.columns]] if self.header else []
        for row in [*head, *(list(map(_field, row)) for row in cells)]:
            line = [_fixed(text, width or 10) for text, (_, width) in zip(row, self.columns, strict=True)]
            click.echo(" ".join(line).rstrip())


def _fixed(text: str, width: int) -> str:
    cut = text if len(text) <= abs(width) else text[: abs(width) - 1] + "+"
    return cut.ljust(-width) if width < 0 else cut.rjust(width)


def _field(value: Any) -> str:
    text = "" if value is None else printer.words(value)
    return printer.one_line("" if text == "-" else text)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool | list | dict) else str(value)


def list_options(
    columns: Sequence[Column],
    shown: Sequence[str],
    spare: Sequence[str] = (),
    short: Sequence[str] = ("-n",),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command --format, --noheader, --parsable2 and -o, as its parameter `shape`; -o wide has all columns.

    `spare`: columns that a narrow terminal does without; `short`: of --noheader.
    """
    known = {column.name.lower(): column for column in columns}
    names = ", ".join(column.name for column in columns)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--format", "wanted", metavar="NAMES", help=f"Columns, as NAME or NAME%WIDTH: {names}.")
        @click.option(*short, "--noheader", "bare", is_flag=True, help="Omit the line of titles.")
        @click.option("-P", "--parsable2", "bars", is_flag=True, help="Separate fields by | and cut none.")
        @printer.output_option
        @functools.wraps(command)
        def run(wanted: str | None, bare: bool, bars: bool, output: str, **rest: Any) -> Any:
            named = [column.name for column in columns] if output == "wide" else shown
            chosen = _read(wanted or ",".join(named), known)
            return command(shape=Shape(chosen, output, not bare, wanted is not None, bars, spare), **rest)

        return run

    return decorate


def _read(text: str, known: Mapping[str, Column]) -> list[tuple[Column, int]]:
    result = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, width = part.partition("%")
        column = known.get(name.lower())
        if column is None:
            hint = meant(name.lower(), known) or f"known are: {', '.join(column.name for column in known.values())}"
            raise click.BadParameter(f"column {name[:40]!r} not found; {hint}", param_hint="--format")
        if width and not width.removeprefix("-").isdecimal():
            message = f"the width of {name} must be a number, got {width[:20]!r}"
            raise click.BadParameter(message, param_hint="--format")
        result.append((column, int(width or 0)))
    return result


# ── what jobs show ──


def site_of(job: Document, site: Document | None) -> str:
    """Return how a site calls a job, and where it is there; empty: it was not handed over.

    >>> site_of({"cluster": "oak"}, {"number": "530", "partition": "batch", "nodes": "n[1-2]"})
    'oak:530 batch n[1-2]'
    """
    if not site or not site.get("number"):
        return ""
    return " ".join(
        [f"{job['cluster']}:{site['number']}", *(site[key] for key in ("partition", "nodes") if site.get(key))]
    )


def expected(eta: Document | None, now: float) -> str:
    """Say when a job is expected, with the band and the age of the forecast; "" if that is unknown."""
    if not eta or eta.get("how") == "unknown" or (eta["end"] if eta["how"] == "running" else eta["start"]) is None:
        return ""
    age = f"as of {_ago(eta['age'])} ago"
    if eta["how"] == "running" and is_over(eta["end"], now):
        return ""
    if eta["how"] == "running":
        return f"expected to end {moment(eta['end'], now)} as runs like it did, {age}"
    start, made = seconds(eta["start"]), seconds(eta.get("at"))
    if start is not None and start <= now and made is not None and start > made:
        return f"due {moment(eta['start'], now)}, {_ago(now - start)} late"
    if start is not None and start <= now:
        return f"expected to start now, {age}"
    return f"expected {moment(eta['start'], now)}, {band(eta, now)}, {age}"


def is_over(time: str | None, now: float) -> bool:
    """Return whether a time is over, or unknown: what was expected then has not happened."""
    at = seconds(time)
    return at is None or at <= now


def band(eta: Document, now: float) -> str:
    """Return the band in which 8 of 10 forecasts lie, or the reason for none."""
    if eta["low"] is None:
        return str(eta.get("text") or "no band")
    return f"80 % likely between {moment(eta['low'], now)} and {moment(eta['high'], now)}"


NEAR = 600.0  # seconds


def moment(time: str | None, now: float) -> str:
    """Write a time to come as a time of day: with seconds within ten minutes, else with what differs from today.

    >>> moment(None, 0.0), moment("2030-06-30T12:00:00Z", 0.0)[:12]
    ('-', '2030-06-30 1')
    """
    at = seconds(time)
    if at is None:
        return "-"
    if abs(at - now) < NEAR:
        return printer.when(at, "%H:%M:%S")
    if printer.when(at, "%Y") != printer.when(now, "%Y"):
        return printer.minute(at)
    today = printer.when(at, "%m-%d") == printer.when(now, "%m-%d")
    return printer.when(at, "%H:%M" if today else "%b %d %H:%M")


def _ago(age: float) -> str:
    return f"{age:.0f} s" if age < 120 else f"{age / 60:.0f} min"


def lasting(job: Document, now: float) -> float | None:
    """Return how many seconds a job has run, None if it has not begun; while it is suspended that stays."""
    summary = job.get("summary") or {}
    started, counts = seconds(summary.get("started_at")), summary.get("counts") or {}
    held = job.get("suspended_at") if counts.get("SUSPENDED") and not counts.get("RUNNING") else None
    until = seconds(job.get("ended_at") or held)
    paused = summary.get("paused") or 0.0
    return None if started is None else max(0.0, (now if until is None else until) - started - paused)


def seconds(moment: str | None) -> float | None:
    """Return a time of the API in seconds since 1970."""
    return None if moment is None else datetime.fromisoformat(moment).astimezone(UTC).timestamp()


def clock(duration: float | None) -> str:
    """Write a duration as Slurm does.

    >>> clock(59.4), clock(3600 * 26 + 61), clock(None)
    ('00:00:59', '1-02:01:01', '-')
    """
    if duration is None:
        return "-"
    minutes, second = divmod(int(duration), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hour:02}:{minute:02}:{second:02}"


ENDED = ("COMPLETED", "FAILED", "TIMED_OUT", "CANCELED")


def progress(job: Document) -> str:
    """Say how many of a job's tasks have ended and failed, if there are several: an array is one line.

    >>> progress({"summary": {"counts": {"COMPLETED": 3, "FAILED": 1, "WAITING": 7}}})
    '4/11, 1 failed'
    """
    counts = (job.get("summary") or {}).get("counts") or {}
    if sum(counts.values()) < 2:
        return ""
    failed = counts.get("FAILED", 0) + counts.get("TIMED_OUT", 0)
    done = f"{sum(counts.get(state, 0) for state in ENDED)}/{sum(counts.values())}"
    return done + (f", {failed} failed" if failed else "")
