"""Progress while it happens, tables when it has, and how to do the same by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from demo.judging import Outcome
from rainbow.cli.output.decisions import why_not
from rainbow.cli.output.printer import clean, table, words

Document = Mapping[str, Any]
States = Mapping[str, tuple[str, str]]  # {jobspec: (cluster, state)}

BY_HAND = """\
By hand, from this folder (. .venv/bin/activate first):
  rainbow serve                                      # it says where it keeps the registration secret
  export RAINBOW_CREDENTIALS=$PWD/credentials.json
  rainbow cluster register graphs/willow/cluster.json --name willow \\
    --subsystem io=graphs/willow/io.subsystem.json --subsystem spack=graphs/willow/spack.subsystem.json \\
    --state graphs/willow/state.json --secret-file rainbow-registration.secret --save credentials.json
  rainbow agent --cluster willow                     # in a terminal of its own, like the server
  rainbow match jobspecs/needs-version.yaml          # which clusters could, and why not the others
  rainbow submit jobspecs/needs-version.yaml --wait
  rainbow submit -n 2 -c 4 -- hostname
  rainbow jobs
  rainbow job why JOB                                # match, selection, scheduling: the whole decision
"""


@contextlib.contextmanager
def progress(console: Console) -> Iterator[Callable[[States], None]]:
    """Yield what shows the states of all jobs: a table that changes on a terminal, else a line for every change."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda states: live.update(table(["JOBSPEC", "CLUSTER", "STATE"], _rows(states)))
    else:
        yield _Lines(console).show


class _Lines:
    """A line for every change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, tuple[str, str]] = {}

    def show(self, states: States) -> None:
        for jobspec, (cluster, state) in states.items():
            if self._shown.get(jobspec) != (cluster, state):
                self._shown[jobspec] = (cluster, state)
                say(self._console, f"  {jobspec} on {cluster}: {state}")


def _rows(states: States) -> list[tuple[str, str, str]]:
    return [(jobspec, cluster, state) for jobspec, (cluster, state) in states.items()]


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line."""
    console.print(Text(clean(text), style=style), soft_wrap=True)


def draw_placed(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Show where every job went and why, and how its tasks ended."""
    rows = [
        (one.file, one.job["cluster"], _why(one), one.job["state"], _tasks(one.job))
        for one in outcomes
        if one.job is not None
    ]
    say(console, "\nWhat ran:", "bold")
    console.print(table(["JOBSPEC", "CLUSTER", "WHY THERE", "STATE", "TASKS: EXIT CODES"], rows))


def _why(outcome: Outcome) -> str:
    if len(outcome.matched) == 1:
        return "the only one that matches"
    selection = outcome.decision["selection"]
    among = f"{selection['selector']} among {', '.join(outcome.matched)}"
    computed = [f"{words(values)} on {cluster}" for cluster, values in selection["values"].items() if values]
    return f"{among}: {selection['reason']}; {', '.join(computed)}" if computed else among


def _tasks(job: Document) -> str:
    return ", ".join(f"{task['name']}: {task['exit_code']}" for task in job["tasks"])


def draw_refused(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Show what no cluster can run, and why each cannot."""
    rows = [
        (one.file if first else "", refusal["cluster"], why_not(refusal))
        for one in outcomes
        for first, refusal in zip([True, *[False] * len(one.refusals)], one.refusals, strict=False)
    ]
    if rows:
        say(console, "\nWhat fits nowhere:", "bold")
        console.print(table(["JOBSPEC", "CLUSTER", "WHY NOT"], rows))
