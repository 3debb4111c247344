"""What became of each jobspec, and what the demo prints of it: progress, tables, and what to do next."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rainbow.cli.output.decisions import why_not
from rainbow.cli.output.printer import clean, table, words

Document = Mapping[str, Any]
States = Mapping[str, tuple[str, str]]  # {jobspec: (cluster, state)}


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """One jobspec: which clusters match it, and either the job it became or why every cluster refused it."""

    file: str
    matched: Sequence[str]
    job: Document | None = None  # as the server shows it at the end
    decision: Document = field(default_factory=dict)
    refusals: Sequence[Document] = ()
    fault: str = ""  # why it was neither placed nor refused

    @property
    def exit_codes(self) -> list[int | None]:
        """The exit codes of the job's tasks."""
        return [task["exit_code"] for task in self.job["tasks"]] if self.job else []


def differences(outcomes: Sequence[DemoOutcome], expected: Mapping[str, Sequence[str]]) -> list[str]:
    """Say what is not as expected, a line each."""
    seen = {outcome.file for outcome in outcomes}
    lines = [f"{file} is expected, and there is no such jobspec" for file in sorted(set(expected) - seen)]
    for outcome in outcomes:
        if outcome.file not in expected:
            lines.append(f"{outcome.file}: no expectation is listed for it")
        else:
            lines += [f"{outcome.file}: {line}" for line in _differs(outcome, sorted(expected[outcome.file]))]
    return lines


def _differs(outcome: DemoOutcome, wanted: Sequence[str]) -> Iterator[str]:
    if outcome.fault:
        yield outcome.fault
    if sorted(outcome.matched) != wanted:
        yield f"matches {', '.join(outcome.matched) or 'nothing'}, expected {', '.join(wanted) or 'nothing'}"
    if outcome.job is None:
        if wanted:
            yield "no job came of it"
        return
    if outcome.job["cluster"] not in wanted:
        yield f"went to {outcome.job['cluster']}"
    if outcome.job["state"] != "COMPLETED" or set(outcome.exit_codes) != {0}:
        yield f"is {outcome.job['state']}, exit codes {outcome.exit_codes}"


NEXT = """\
Next, the same by hand, in one terminal:
  rainbow demo --files rainbow-examples              # these clusters and jobspecs as files
  cd rainbow-examples
  rainbow serve &                                    # it prints where it keeps the registration secret
  export RAINBOW_CREDENTIALS=$PWD/credentials.json
  rainbow cluster register graphs/willow/cluster.json --name willow \\
    --subsystem io=graphs/willow/io.subsystem.json --subsystem spack=graphs/willow/spack.subsystem.json \\
    --state graphs/willow/state.json --secret-file rainbow-registration.secret --save credentials.json
  rainbow agent --cluster willow --quiet &           # runs the tasks of the jobs that go to willow
  rainbow match jobspecs/needs-version.yaml          # which clusters could run it, and why the others cannot
  rainbow submit jobspecs/needs-version.yaml --wait
  rainbow submit -n 2 -c 4 --wait -- hostname        # without a jobspec
  rainbow job why $(rainbow job last)                # how the cluster and the start were chosen
  rainbow demo --keep                                # the demo again, to look at its web page in a browser
  rainbow help                                       # every command; `rainbow cluster import` adds your own cluster
"""


def next_steps() -> str:
    """Return what to do after the demo, beginning with the virtual environment where the shell is not in it."""
    activate = Path(sys.prefix) / "bin" / "activate"
    return NEXT if shutil.which("rainbow") or not activate.is_file() else f"First: . {activate}\n{NEXT}"


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


def draw_placed(console: Console, outcomes: Sequence[DemoOutcome]) -> None:
    """Show where every job went and why, and how its tasks ended."""
    rows = [
        (one.file, one.job["cluster"], _why(one), one.job["state"], _tasks(one.job))
        for one in outcomes
        if one.job is not None
    ]
    say(console, "\nWhat ran:", "bold")
    console.print(table(["JOBSPEC", "CLUSTER", "WHY THERE", "STATE", "TASKS: EXIT CODES"], rows))


def _why(outcome: DemoOutcome) -> str:
    if len(outcome.matched) == 1:
        return "the only one that matches"
    selection = outcome.decision["selection"]
    among = f"{selection['selector']} among {', '.join(outcome.matched)}"
    computed = [f"{words(values)} on {cluster}" for cluster, values in selection["values"].items() if values]
    return f"{among}: {selection['reason']}; {', '.join(computed)}" if computed else among


def _tasks(job: Document) -> str:
    return ", ".join(f"{task['name']}: {task['exit_code']}" for task in job["tasks"])


def draw_refused(console: Console, outcomes: Sequence[DemoOutcome]) -> None:
    """Show what no cluster can run, and why each cannot."""
    rows = [
        (one.file if first else "", refusal["cluster"], why_not(refusal))
        for one in outcomes
        for first, refusal in zip([True, *[False] * len(one.refusals)], one.refusals, strict=False)
    ]
    if rows:
        say(console, "\nWhat fits nowhere:", "bold")
        console.print(table(["JOBSPEC", "CLUSTER", "WHY NOT"], rows))
