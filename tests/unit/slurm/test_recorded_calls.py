"""What a real Slurm printed for the calls of workflow tools is printed of the same jobs here."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime

from rainbow.jobspec.request import Numbers
from rainbow.slurm import sacct, scontrol, sinfo, squeue
from rainbow.slurm.command_line import read_words
from rainbow.slurm.job_rows import JobRow, NodeRow
from tests.support.asking import shared_folder

SUBMIT = datetime(2026, 11, 26, 16, 0, 14, tzinfo=UTC).timestamp()
DAY = 86_400.0
PLAIN = JobRow(
    number=3,
    array=3,
    name="okay",
    user="ann",
    uid=3001,
    gid=3001,
    state="PENDING",
    reason="Resources",
    account="lab",
    cluster="oak",
    partition="batch",
    submit=SUBMIT,
    limit=3600.0,
    priority=1070,
    requeue=True,
)


def row(number: int, name: str, reason: str = "Priority", **more: object) -> JobRow:
    return replace(PLAIN, number=number, array=number, name=name, reason=reason, **more)  # type: ignore[arg-type]


ARRAY = row(5, "arr", waiting=Numbers((range(1, 5),)), at_once=2)
BIG = row(
    *(6, "big", "None"),
    state="RUNNING",
    start=SUBMIT,
    run=4.0,
    nodes=["n1", "n2", "n3", "n4"],
    node_count=4,
    cores=32,
)
JOBS = [
    row(8, "gone", state="CANCELLED", end=SUBMIT),
    row(12, "m"),
    ARRAY,
    row(9, "tl"),
    row(3, "okay", "Resources"),
    row(4, "bad"),
    row(11, "beg", "BeginTime"),
    row(10, "dep", "Dependency"),
    row(7, "held", "JobHeldUser"),
    BIG,
]
# Slurm's own order by priority, which only it knows
JOBS = [replace(one, priority=1000 - place) for place, one in enumerate(JOBS)]
NODES = [
    NodeRow("batch", "allocated", ["n1", "n2", "n3", "n4"], total=32, memory=16_000),
]


def calls() -> list[tuple[str, str]]:
    text = (shared_folder() / "inputs" / "slurm-calls.json").read_text()
    return [(one["call"], one["recorded"]) for one in json.loads(text)["calls"]]


def chosen(words: list[str]) -> list[JobRow]:
    """Return the jobs that a recorded call shows: which these are the service says."""
    named = re.search(r"--name[ =](\S+)", " ".join(words))
    jobs = [one for one in JOBS if named is None or one.name == named[1]]
    ids = [int(one) for one in re.findall(r"(?:-j|--job)[ =]([\d,]+)", " ".join(words)) for one in one.split(",")]
    return [one for one in jobs if not ids or one.number in ids]


def test_recorded_squeue() -> None:
    results = [(shlex.split(text), recorded) for text, recorded in calls() if text.startswith("squeue")]
    assert len(results) == 5
    for (_, *words), recorded in results:
        options = read_words("squeue", words)
        states = squeue.states_wanted(options, {})
        shown = [one for one in chosen(words) if one.state in states]
        assert squeue.written(shown, options, {}, 0) == recorded, words


def test_recorded_sacct() -> None:
    for text, recorded in calls():
        command, *words = shlex.split(text)
        if command != "sacct" or not words:
            continue
        options = read_words("sacct", words)
        order = [int(number) for number in re.findall(r"^(\d+)", recorded, re.M)]
        shown = sorted(chosen(words), key=lambda one: order.index(one.number))
        assert sacct.written(shown, options, {}, 0) == recorded


def test_recorded_list_of_sacct() -> None:
    recorded = dict(calls())["sacct"].splitlines(keepends=True)
    by_number = {one.number: one for one in JOBS}
    shown = [replace(by_number[3], state="CANCELLED", end=SUBMIT), *(by_number[one] for one in (4, 6, 8, 9, 12, 5))]
    written = sacct.written(shown, read_words("sacct", []), {}, 0).splitlines(keepends=True)
    # of the batch step Slurm counts the cores of its node alone
    assert [line for line in written if ".batch" not in line] == [line for line in recorded if ".batch" not in line]


def test_recorded_job_of_scontrol() -> None:
    recorded = dict(calls())["scontrol show job 5"]
    work = "/home/ann/home/ann"
    job = replace(ARRAY, priority=1070, command=f"{work}/long.sh", folder="/home/ann/work")
    job = replace(job, output=f"{work}/slurm-5_4294967294.out", memory=1000)
    written = scontrol.job_text([job], 0, one=False, details=False)
    keys = r"(\S+?)=((?:(?! \S+=|\n).)*)"
    ours, theirs = dict(re.findall(keys, written)), dict(re.findall(keys, recorded))
    # a plan's times, and what only the machine that submitted knows
    own = {"StartTime", "EndTime", "LastSchedEval", "Scheduler", "AllocNode:Sid", "SchedNodeList", "MinMemoryCPU"}
    own |= {"MinMemoryNode"}
    differ = {key: (ours.get(key), theirs[key]) for key in theirs.keys() - own if ours.get(key) != theirs[key]}
    assert differ == {}


def test_recorded_partitions_of_sinfo() -> None:
    recorded = dict(calls())["sinfo -a -o '%P %G %l %p %c %m'"].splitlines()
    written = sinfo.written(NODES, read_words("sinfo", ["-a", "-o", "%P %G %l %p %c %m"]), {}, "batch").splitlines()
    assert written[0] == recorded[0]
    assert [len(line.split()) for line in written] == [6, 6]


def test_recorded_list_of_sinfo() -> None:
    recorded = dict(calls())["sinfo"].splitlines()
    written = sinfo.written(NODES, read_words("sinfo", []), {}, "batch").splitlines()
    assert written[0] == recorded[0]
    assert written[1] == recorded[1].replace("2-00:00:00", "  infinite")
