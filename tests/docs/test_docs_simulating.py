"""docs/simulating.md works as it is written: an operator tries an order on last month's history."""

from __future__ import annotations

import gzip
import random
import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from rainbow.cli import main
from rainbow.state_machine import JobState, Task, TaskState
from rainbow.store import clusters, jobs, open_store, tasks
from rainbow.store.clusters import ClusterRecord
from rainbow.store.jobs import JobRecord
from tests.support.pages import commands
from tests.unit.scheduling.priority.test_priority_expression import workload

PAGE = Path(__file__).parents[2] / "docs" / "simulating.md"
BEGIN = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
COMMANDS = commands(PAGE.read_text())
MACHINE = {
    "graph": {
        "nodes": {
            "c": {"metadata": {"type": "cluster"}},
            "n": {"metadata": {"type": "node"}},
            "k": {"metadata": {"type": "core", "count": 64}},
        },
        "edges": [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}],
    }
}


def month():
    """The jobs of a month: 600, bursty, of four users; small ones are short."""
    chance = random.Random(31)
    made = workload(600, seed=12, load=0.9)
    first, span = made[0].submit, made[-1].submit - made[0].submit
    names = ["ann", "bob", "cyd", "dan"]
    return [
        replace(
            job,
            submit=BEGIN + 60 + 30.5 * 86_400 * (job.submit - first) / span,
            runtime=round(job.runtime * 9.5 * 86_400 / span, 3),
            walltime=round(job.walltime * 9.5 * 86_400 / span, 3),
            requestor=chance.choice(names),
        )
        for job in made
    ]


def jobspec(job):
    slot = {"type": "slot", "count": job.least, "label": "task", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["work"], "slot": "task", "count": {"total": 1}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": job.walltime}}}


def recorded(folder, made):
    """A server's database with a cluster and these jobs, ended."""
    store = open_store(f"sqlite:///{folder / 'rainbow.db'}")
    with store.write() as connection:
        clusters.add(connection, ClusterRecord("oak-id", "oak", "any", "node", BEGIN, "priority", {}), MACHINE)
        for k, job in enumerate(made):
            name, times = f"{k:024x}", {"started_at": job.submit + 9, "ended_at": job.submit + 9 + job.runtime}
            record = JobRecord(name, "work", job.requestor, "oak-id", "oak", 1, job.submit, JobState.COMPLETED)
            jobs.add(connection, record, jobspec(job), {})
            tasks.add(connection, "oak-id", [Task(f"{name}-0", name, 0, 0, "work", TaskState.COMPLETED, **times)])
    store.close()


def swf(made):
    """The same jobs as a trace."""
    users = {"ann": 1, "bob": 2, "cyd": 3, "dan": 4}
    rows = (
        f"{k} {job.submit - BEGIN:.3f} -1 {job.runtime} {job.least} -1 -1 {job.least} {job.walltime} -1 1 "
        f"{users[job.requestor]} -1 -1 0 -1 -1 -1\n"
        for k, job in enumerate(made, start=1)
    )
    return gzip.compress("".join(rows).encode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    there, made = tmp_path_factory.mktemp("operator"), month()
    recorded(there, made)
    (there / "month.swf.gz").write_bytes(swf(made))
    for name, cores in (("oak", 48), ("ash", 16)):
        (there / "clusters" / name).mkdir(parents=True)
        text = str(MACHINE).replace("'", '"').replace("64", str(cores))
        (there / "clusters" / name / "cluster.json").write_text(text)
    for command, _ in COMMANDS:
        if command.startswith("cat "):
            subprocess.run(["bash", "-c", command], cwd=there, check=True)
    return there


RUN = [
    (command, text) for command, text in COMMANDS if command.startswith("rainbow ") and "scheduler set" not in command
]


@pytest.mark.parametrize(("command", "text"), RUN, ids=[command[:60] for command, _ in RUN])
def test_a_command_prints_what_the_page_says(folder, monkeypatch, command, text):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TZ", "UTC")
    result = CliRunner().invoke(main, shlex.split(command)[1:], env={"COLUMNS": "110"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert [line.rstrip() for line in result.output.splitlines()] == [line.rstrip() for line in text.splitlines()]


def test_the_picture_was_drawn(folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, ["simulate", "month.swf.gz", "--cores", "64", "--jobs", "50", "--svg", "a.svg"])
    assert result.exit_code == 0, result.output
    assert (folder / "a.svg").read_text().startswith("<svg")
