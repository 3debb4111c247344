"""The demo from start to end: processes, registrations, jobs, and the comparison with what is expected."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from rainbow.cli.demo import examples
from rainbow.cli.demo.processes import DemoError, DemoServer, Interrupted, install, process, server
from rainbow.cli.demo.tables import DemoOutcome, differences, draw_placed, draw_refused, next_steps, progress, say
from rainbow.cli.output import printer
from rainbow.cli.output.printer import console as new_console
from rainbow.client import Client, Problem
from rainbow.client.wait import ENDED
from rainbow.errors import RainbowError

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
    found = "Some results differ from" if different else f"All {len(outcomes)} jobspecs gave"
    took = f"It took {time.monotonic() - started:.0f} s; the server and the agents have ended."
    say(console, f"\n{found} the expected results. {took}\n")
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
            found = {file: now[job["id"]] for file, job in jobs.items()}
            show({file: (job["cluster"], job["state"]) for file, job in found.items()})
            if all(job["state"] in ENDED for job in found.values()) or time.monotonic() > limit:
                return {file: client.job(job["id"]) for file, job in found.items()}
            time.sleep(0.25)


def _at_end(outcome: DemoOutcome, ended: Mapping[str, Any]) -> DemoOutcome:
    if outcome.job is None:
        return outcome
    return DemoOutcome(outcome.file, outcome.matched, ended[outcome.file], outcome.decision)
