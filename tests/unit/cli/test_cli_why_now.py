"""The day of a user who waits: why not now, and what would start it, as docs/why.md begins with it."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Any

from rainbow.cli import session
from rainbow.client import Client
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.live import agent_of
from tests.support.pages import commands
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures
PAGE = Path(__file__).parents[3] / "docs" / "why.md"


def waiting_for(shell: Shell, job: str, reason: str) -> str:
    """Return the sentence of a job once it waits for a reason."""
    until = time.monotonic() + 60
    while (wait := shell.json("job", "show", job)["wait"] or {}).get("reason") != reason:
        assert time.monotonic() < until, wait
        time.sleep(0.05)
    return str(wait["text"])


def running(shell: Shell, job: str) -> None:
    until = time.monotonic() + 60
    while shell.json("job", "show", job)["state"] != "RUNNING":
        assert time.monotonic() < until
        time.sleep(0.05)


def plain(text: str) -> str:
    """Return a text without what differs from run to run: numbers, ids, times and rows of blanks."""
    text = re.sub(r"[0-9a-f]{24}|\b18[0-9a-f]{5}\b", "ID", text)
    text = re.sub(r"\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d\d:\d\d UTC", "TIME", text)
    text = re.sub(r"\(\w+\)", "(USER)", text)
    text = re.sub(r"\d+ jobs?", "N jobs", text)
    return re.sub(r" {2,}", "  ", re.sub(r"\d+", "N", text))


def test_a_user_who_waits_reads_for_whom_the_cores_are_kept_and_what_would_start_the_job(shell: Shell) -> None:
    jobs = []
    try:
        jobs.append(shell.json("submit", "-N", "1", "--exclusive", "-t", "30m", "--", "sleep", "600")["id"])
        running(shell, jobs[0])
        jobs.append(
            shell.json("submit", "-N", "2", "--exclusive", "-t", "1h", "-J", "genome-align-48", "--", "true")["id"]
        )
        jobs.append(shell.json("submit", "-J", "cleanup", "--", "true")["id"])
        said = waiting_for(shell, jobs[2], "kept")
        assert plain(said) == (
            "N cores are free but kept for genome-align-N (USER) until TIME; a limit of N min or less starts it now"
        )
        listed = next(one for one in shell.json("jobs") if one["id"] == jobs[2])
        why = shell.json("job", "why", jobs[2])
        assert listed["wait"]["text"] == said == why["wait"]["text"] == why["now"]["text"]
        assert [change["change"] for change in why["now"]["changes"]] == ["limit"]
        assert why["now"]["free"]["core"] == 4
        assert [one["for"]["name"] for one in why["now"]["kept"]] == ["genome-align-48"]
        shown = shell("job", "why", jobs[2]).stdout.splitlines()
        answer = dict(commands(PAGE.read_text()))["rainbow job why cleanup"].splitlines()
        assert [plain(line) for line in shown[: len(answer)]] == [plain(line) for line in answer]
    finally:
        for job in jobs:
            shell("job", "cancel", job)


def with_gpus(nodes: int, cores: int, gpus: int) -> dict[str, Any]:
    """A cluster of so many nodes, of which the first have a GPU."""
    graph = grid(nodes, cores)
    for node in range(gpus):
        graph["graph"]["nodes"][f"g{node}"] = {"metadata": {"type": "gpu", "name": f"gpu{node}"}}
        graph["graph"]["edges"].append({"source": f"n{node}", "target": f"g{node}", "relation": "contains"})
    return graph


GRAPHS = {"elm": with_gpus(2, 4, 1), "fir": grid(2, 4)}


def on_a_gpu(shell: Shell, name: str, *command: str, limit: int) -> tuple[str, ...]:
    spec = jobspec(1, list(command), duration=limit)
    spec["resources"][0]["with"][0]["with"].append({"type": "gpu", "count": 1})
    return (str(shell.file(f"{name}.json", spec)), "-J", name)


def offers(shell: Shell, job: str) -> dict[str, list[str]]:
    """Return {kind: command} of what would start a job, as `rainbow job why` prints it.

    Between two questions a plan may come that offers another limit: it is asked until both say the same.
    """
    until = time.monotonic() + 60
    while True:
        changes = (shell.json("job", "why", job)["now"] or {}).get("changes") or []
        shown = shell("job", "why", job).stdout.splitlines()
        assert [line for line in shown if line != line.rstrip()] == []
        printed = [
            any(one["text"] in line and shlex.join(one["command"]) in line for line in shown) for one in changes
        ]
        if changes and all(printed):
            return {one["change"]: one["command"] for one in changes}
        assert time.monotonic() < until, (changes, shown)
        time.sleep(0.05)


def ends(shell: Shell, job: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while (shown := shell.json("job", "show", job))["state"] not in ("COMPLETED", "FAILED"):
        assert time.monotonic() < until, shown
        time.sleep(0.05)
    return dict(shown)


def test_each_command_that_is_printed_starts_the_job(shell: Shell) -> None:
    """A limit, fewer nodes, one requirement less, another cluster: each is run as it is printed."""
    jobs: list[str] = []

    def submit(*words: str) -> str:
        jobs.append(shell.json("submit", "--cluster", "elm", "--cluster", "fir", *words)["id"])
        return jobs[-1]

    with Client(shell.url, REGISTRATION) as client:
        answer = {name: client.register_cluster(name, graph) for name, graph in GRAPHS.items()}
    for name, one in answer.items():
        session.save(Path(shell.variables["RAINBOW_CREDENTIALS"]), shell.url, name, one["token"], one["secret"])
    try:
        with agent_of(shell.url, "elm", answer["elm"]["secret"]):
            running(shell, submit(*on_a_gpu(shell, "model", "sleep", "600", limit=1800)))
            submit("-N", "2", "--exclusive", "-t", "1h", "-J", "wide", "--", "true")
            waiting = {
                "limit": submit("-t", "3h", "--", "true"),
                "without": submit(*on_a_gpu(shell, "other", "true", limit=600)),
                "nodes": submit("-N", "2", "--exclusive", "-t", "10m", "--", "true"),
            }
            last = submit("-t", "3h", "-J", "last", "--", "true")
            for kind, job in waiting.items():
                command = offers(shell, job)[kind]
                assert "->" in shell(*command[1:]).stdout
                shown = ends(shell, job)
                assert (shown["state"], shown["cluster"]) == ("COMPLETED", "elm")
                assert len(shown["changes"]) == 1
            with agent_of(shell.url, "fir", answer["fir"]["secret"]):
                until = time.monotonic() + 60
                while "cluster" not in (results := offers(shell, last)):
                    assert time.monotonic() < until, results
                    time.sleep(0.05)
                assert list(results) == ["limit", "cluster"]
                assert "cluster elm -> fir" in shell(*results["cluster"][1:]).stdout
                shown = ends(shell, last)
                assert (shown["state"], shown["cluster"]) == ("COMPLETED", "fir")
    finally:
        for job in jobs:
            shell("job", "cancel", job)
        for name in answer:
            shell("cluster", "delete", name, "--yes")
