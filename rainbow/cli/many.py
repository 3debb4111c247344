"""`rainbow submit` of many jobspecs: a hundred a call, each with its own answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rainbow.cli import files, printing, progress
from rainbow.cli.decisions import draw_warnings
from rainbow.cli.exits import UNMATCHED, Exit
from rainbow.cli.reading import text_of
from rainbow.client import Client

TOGETHER = 100  # jobs in one call
Row = dict[str, Any]


def is_many(what: Sequence[str]) -> bool:
    """Tell whether these are several jobspecs, or a folder of them."""
    return len(what) > 1 or any(Path(path).is_dir() for path in what)


def paths_of(what: Sequence[Path]) -> list[Path]:
    """List the jobspecs of these files and folders."""
    return [path for given in what for path in files.jobspec_files(given)]


def submit_many(client: Client, what: Sequence[Path], common: Mapping[str, Any], key: str | None) -> list[Row]:
    """Submit every jobspec of these files and folders; return what became of each, in their order."""
    paths = paths_of(what)
    parts = [(start, paths[start : start + TOGETHER]) for start in range(0, len(paths), TOGETHER)]
    rows: list[Row] = []
    for start, part in progress.counted("submitting", parts, lambda each: len(each[1])):
        jobs = [{"jobspec": text_of(path), **common} for path in part]
        told = client.submit_batch(jobs, idempotency_key=f"{key}/{start}" if key else None)
        rows += [{"jobspec": str(path), **answer} for path, answer in zip(part, told["answers"], strict=True)]
    return rows


def draw_many(console: Console, rows: Sequence[Row]) -> None:
    """Show a line per jobspec, and how many went where."""
    shown = [(row["jobspec"], row.get("id"), row.get("cluster"), row.get("detail", "")) for row in rows]
    console.print(printing.table(["JOBSPEC", "JOB", "CLUSTER", "REFUSED BECAUSE"], shown))
    for row in rows:
        draw_warnings(console, row.get("decision") or {}, f"{row['jobspec']}: ")
    console.print(printing.words(Counter(row.get("cluster") or "refused" for row in rows)))


def exit_of_many(rows: Sequence[Row]) -> Exit:
    """Return 0 if all were placed, 3 if no cluster takes some, 1 if anything else is wrong with some."""
    refused = {row.get("code") for row in rows if "id" not in row}
    if not refused:
        return Exit.OK
    return Exit.NO_MATCH if refused and refused <= {*UNMATCHED} else Exit.ERROR
