"""The demo from start to end: processes, registrations, jobs, what became of them, and what was expected."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rainbow.cli.demo import examples
from rainbow.cli.demo.processes import DemoError, DemoServer, Interrupted, install, process, server
from rainbow.cli.output import printer
from rainbow.cli.output.decisions import why_not
from rainbow.cli.output.printer import clean, table, words
from rainbow.cli.output.printer import console as new_console
from rainbow.client import Client, Problem
from rainbow.client.wait import ENDED
from rainbow.errors import RainbowError

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


def _differs(outcome: DemoOutcome, requirements: Sequence[str]) -> Iterator[str]:
    if outcome.fault:
        yield outcome.fault
    if sorted(outcome.matched) != requirements:
        yield f"matches {', '.join(outcome.matched) or 'nothing'}, expected {', '.join(requirements) or 'nothing'}"
    if outcome.job is None:
        if requirements:
            yield "no job came of it"
        return
    if outcome.job["cluster"] not in requirements:
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


DONE_WITHIN = 90.0  # seconds for all jobs


def main(*, keep: bool = False) -> int:
    """Run the demo; return the exit code, 1 if anything differs from what is expected. `keep`: until Enter."""
    install()
    console = new_console()
    started = time.monotonic()
    try:
        outcomes = _show(console, keep=keep)
    except (DemoError, RainbowError) as error:
        say(console, f"the demo failed: {error}", "red")
        return 1
    except Interrupted as signal:
        say(console, "interrupted; the server and the agents have ended")
        return 128 + signal.number
    draw_placed(console, outcomes)
    draw_refused(console, outcomes)
    different = differences(outcomes, examples.expected())
    for line in different:
        say(console, f"not as expected: {line}", "red")
    text = "Some results differ from" if different else f"All {len(outcomes)} jobspecs gave"
    took = f"It took {time.monotonic() - started:.0f} s; the server and the agents have ended."
    say(console, f"\n{text} the expected results. {took}\n")
    console.print(next_steps(), end="", soft_wrap=True)
    return 1 if different else 0


def _show(console: Console, *, keep: bool) -> list[DemoOutcome]:
    with tempfile.TemporaryDirectory(prefix="rainbow-demo-") as name:
        folder = Path(name)
        with server(folder) as there, ExitStack() as running:
            say(console, f"a server at {there.url}, its database in {folder}")
            tokens = [running.enter_context(_cluster(console, there, one, folder)) for one in examples.clusters()]
            with Client(there.url, tokens) as client:
                outcomes = _run_jobs(console, client)
            if keep:
                _keep(console, there, folder)
            return outcomes


def _keep(console: Console, there: DemoServer, folder: Path) -> None:
    """Say where to look, and wait for Enter, or a signal where there is no terminal."""
    token = (folder / "rainbow-admin.secret").read_text().strip()
    say(console, f"\nLook at {there.url} and sign in with the token {token}", "bold")
    say(console, "Press Enter to end the server and the agents.")
    if not sys.stdin.readline():
        signal.pause()


@contextmanager
def _cluster(console: Console, there: DemoServer, cluster: examples.ExampleCluster, folder: Path) -> Iterator[str]:
    """Register a cluster and run its agent; yields the submit token."""
    with Client(there.url, there.secret) as client:
        made = client.register_cluster(cluster.name, cluster.graph, cluster.subsystems, cluster.state)
    totals = ", ".join(f"{amount} {kind}" for kind, amount in printer.totals(made).items())
    say(console, f"cluster {cluster.name} ({totals}; subsystems {', '.join(cluster.subsystems)}) and its agent")
    words = ["agent", "--cluster", cluster.name, "--executor", "local", "--url", there.url]
    with process(words, folder / f"{cluster.name}.log", {"RAINBOW_SECRET": made["secret"]}):
        yield made["token"]


def _run_jobs(console: Console, client: Client) -> list[DemoOutcome]:
    submitted = [_submit(client, file, text) for file, text in examples.jobspecs().items()]
    say(console, f"{len(submitted)} jobspecs submitted")
    ended = _wait(console, client, {one.file: one.job for one in submitted if one.job is not None})
    return [_at_end(one, ended) for one in submitted]


def _submit(client: Client, file: str, text: str) -> DemoOutcome:
    matched = [one["cluster"] for one in client.match(text)["candidates"]]
    try:
        made = client.submit(text, name=file.removesuffix(".yaml"), selector=examples.SELECTORS.get(file))
    except Problem as problem:
        refusals = problem.facts.get("refusals", [])
        return DemoOutcome(file, matched, refusals=refusals, fault="" if refusals else str(problem))
    return DemoOutcome(file, matched, job=dict(made), decision=made["decision"])


def _wait(console: Console, client: Client, jobs: Mapping[str, Any]) -> dict[str, Any]:
    """Show the states of the jobs until all have ended or DONE_WITHIN is over; return them by file."""
    limit = time.monotonic() + DONE_WITHIN
    with progress(console) as show:
        while True:
            now = {job["id"]: job for job in client.all_jobs()}
            results = {file: now[job["id"]] for file, job in jobs.items()}
            show({file: (job["cluster"], job["state"]) for file, job in results.items()})
            if all(job["state"] in ENDED for job in results.values()) or time.monotonic() > limit:
                return {file: client.job(job["id"]) for file, job in results.items()}
            time.sleep(0.25)


def _at_end(outcome: DemoOutcome, ended: Mapping[str, Any]) -> DemoOutcome:
    if outcome.job is None:
        return outcome
    return DemoOutcome(outcome.file, outcome.matched, ended[outcome.file], outcome.decision)
