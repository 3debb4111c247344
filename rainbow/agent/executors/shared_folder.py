"""A folder that an agent shares with the nodes of its cluster: runs to start there, and how they ended.

    runs/KEY     written by the agent: what is to run
    begun/KEY    the same file, moved by the first node that begins: the node that moves a run has it
    marks/KEY    written before the resource manager is given it: what tells its job from all others
    natives/KEY  the number the resource manager gave it
    lists/GROUP  the keys of runs that are one array there, each after its index; instead of marks
    places/KEY   its partition and nodes there, as the job itself knows them
    claims/KEY   the number of the job that runs it: a second job of the same run ends at once
    outputs/KEY  what its job writes, where nobody asked for a file
    given/KEY    which cores and GPUs of which nodes the resource manager gave it
    stops/KEY    its presence asks for the end
    holds/KEY    its presence asks to hold it in place
    ends/KEY.N   written by the N-th node: how its share ended

Every file appears whole, by renaming. A resource manager starts a share of a run on a node with
`python bare.py shared_folder FOLDER KEY SHARES`: the command and its end go through these files, never through a
shell's command line. A command of an account that cannot write there is started by
`python bare.py shared_folder "" COMMAND`. Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from rainbow.agent.executors import cgroups
from rainbow.agent.executors.local import LocalExecutor, binding_variables, cpus_of
from rainbow.agent.executors.run import (
    TAIL,
    Ended,
    Result,
    Run,
    RunId,
    end_from_json,
    end_to_json,
    run_from_json,
    run_to_json,
    shares,
)
from rainbow.jobspec.hostlist import expand_hosts, expand_ids

NodeDevices = dict[str, dict[str, list[int]]]  # {node: {"core": [0, 1], "gpu": [0]}}
MOST_LISTED = 100_000  # cores of a node, nodes of a job
ROOMS = (
    "runs",
    "begun",
    "lists",
    "marks",
    "natives",
    "places",
    "claims",
    "outputs",
    "given",
    "stops",
    "holds",
    "ends",
)


def key_of(run: RunId) -> str:
    """Name a run's files: task ids are the server's, and no file names.

    >>> key_of(("t", 1))
    'e3b98a4da31a127d4bde6e43033f66ba-1'
    """
    return f"{sha256(run[0].encode()).hexdigest()[:32]}-{run[1]}"


class SharedFolder:
    """Reads and writes the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for room in ROOMS:
            (folder / room).mkdir(mode=0o700, parents=True, exist_ok=True)

    def at(self, room: str, key: str) -> Path:
        """Return where a file is."""
        return self.folder / room / key

    def put(self, run: Run, environment: Mapping[str, str]) -> None:
        """Leave a run for the nodes."""
        self._write("runs", key_of(run.id), json.dumps({"run": run_to_json(run), "environment": dict(environment)}))

    def take(self, key: str) -> tuple[Run, dict[str, str]] | None:
        """Take a run on a node; None if it was taken back. Every node of it gets it."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.at("runs", key), self.at("begun", key))
        try:
            answer = json.loads(self.at("begun", key).read_text())
        except FileNotFoundError:
            return None
        return run_from_json(answer["run"]), answer["environment"]

    def take_back(self, run: RunId) -> bool:
        """Take a run from the desk before any node has begun it; False if one was faster."""
        try:
            self.at("runs", key_of(run)).unlink()
        except FileNotFoundError:
            return False
        return True

    def name(self, run: RunId, native: str) -> None:
        """Remember the number the resource manager gave a run."""
        self._write("natives", key_of(run), native)

    def place(self, run: RunId, partition: str, nodes: str) -> None:
        """Leave where a job is."""
        self._write("places", key_of(run), f"{partition}\n{nodes}")

    def placed(self, run: RunId) -> tuple[str, str]:
        """Return the partition and the nodes of a job, as far as that is known."""
        partition, _, nodes = (self._read("places", run) or "").partition("\n")
        return partition, nodes

    def native(self, run: RunId) -> str | None:
        """Return that number, if it is known."""
        return self._read("natives", run)

    def noted_at(self, run: RunId, group: str = "") -> float:
        """Return when a run's mark was written down, or the list of its array; 0: it is not known."""
        return self._written_at("lists", group) if group else self._written_at("marks", key_of(run))

    def named_at(self, run: RunId) -> float:
        """Return when a run's number was written down; 0: it is not known."""
        return self._written_at("natives", key_of(run))

    def _written_at(self, room: str, key: str) -> float:
        with contextlib.suppress(OSError):
            return self.at(room, key).stat().st_mtime
        return 0.0

    def note(self, run: RunId, mark: str) -> None:
        """Remember, on the disk before this returns, what will tell a run's job from all others."""
        self._write("marks", key_of(run), mark, lasting=True)

    def noted(self, run: RunId) -> str | None:
        """Return what was noted."""
        return self._read("marks", run)

    def enlist(self, group: str, elements: Mapping[str, RunId]) -> None:
        """Remember, on the disk before this returns, which runs are which elements of an array."""
        lines = [f"{index} {key_of(run)}\n" for index, run in elements.items()]
        self._write("lists", group, "".join(lines), lasting=True)

    def listed(self) -> dict[str, tuple[str, str]]:
        """Return {key of a run: (its array, its index)} of all arrays."""
        result = {}
        for path in (self.folder / "lists").glob("*[0-9a-f]"):
            for line in path.read_text().splitlines():
                index, _, key = line.partition(" ")
                result[key] = (path.name, index)
        return result

    def strike(self, group: str, index: str, *, last: bool) -> None:
        """Throw away what an element has written; the list of its array with the last of them."""
        self.at("outputs", f"{group}-{index}").unlink(missing_ok=True)
        if last:
            self.at("lists", group).unlink(missing_ok=True)

    def claim(self, run: RunId, native: str) -> bool:
        """Take a run for a job; False if another job has it. All nodes of a job, and its requeued self, have it."""
        draft = self.at("claims", f"{key_of(run)}.{native}.{socket.gethostname()}.{os.getpid()}.draft")
        draft.write_text(native)
        with contextlib.suppress(FileExistsError):
            os.link(draft, self.at("claims", key_of(run)))
        draft.unlink()
        return self.claimed(run) == native

    def give(self, run: RunId, options: NodeDevices) -> None:
        """Leave which cores and GPUs a run has."""
        self._write("given", key_of(run), json.dumps(options))

    def given(self, run: RunId) -> NodeDevices | None:
        """Return which cores and GPUs a run has, if that is known."""
        text = self._read("given", run)
        return json.loads(text) if text is not None else None

    def claimed(self, run: RunId) -> str | None:
        """Return the number of the job that has a run."""
        return self._read("claims", run)

    def _read(self, room: str, run: RunId) -> str | None:
        try:
            return self.at(room, key_of(run)).read_text()
        except FileNotFoundError:
            return None

    def ask_to_stop(self, run: RunId) -> None:
        """Ask the nodes of a run to end it."""
        self.at("stops", key_of(run)).touch()

    def is_asked_to_stop(self, run: RunId) -> bool:
        """Return whether a run is to end."""
        return self.at("stops", key_of(run)).exists()

    def ask_to_hold(self, run: RunId) -> None:
        """Ask the nodes of a run to hold it in place."""
        self.at("holds", key_of(run)).touch()

    def ask_to_go_on(self, run: RunId) -> None:
        """Ask the nodes of a run to let it continue."""
        self.at("holds", key_of(run)).unlink(missing_ok=True)

    def is_asked_to_hold(self, run: RunId) -> bool:
        """Return whether a run is to be held."""
        return self.at("holds", key_of(run)).exists()

    def end(self, share: int, end: Ended) -> None:
        """Leave how a share of a run ended."""
        self._write("ends", f"{key_of(end.id)}.{share}", json.dumps(end_to_json(end)))

    def ended(self) -> dict[str, list[int]]:
        """Return {key: the shares that have ended} of all runs, in one look."""
        result: dict[str, list[int]] = {}
        with os.scandir(self.folder / "ends") as entries:
            for entry in entries:
                key, _, share = entry.name.partition(".")
                if share.isdigit():
                    result.setdefault(key, []).append(int(share))
        return result

    def read_end(self, run: RunId, share: int) -> Ended:
        """Read how a share of a run ended."""
        return end_from_json(json.loads(self.at("ends", f"{key_of(run)}.{share}").read_text()))

    def there(self) -> list[Run]:
        """Return the runs that are on the desk, or begun."""
        results: dict[RunId, Run] = {}
        for room in ("runs", "begun"):
            for path in sorted((self.folder / room).glob("*[0-9]")):
                with contextlib.suppress(FileNotFoundError):  # moved to `begun` meanwhile: found there
                    run = run_from_json(json.loads(path.read_text())["run"])
                    results[run.id] = run
        return list(results.values())

    def all_begun(self) -> set[str]:
        """Return the keys of all runs that a node has begun, in one look."""
        return set(os.listdir(self.folder / "begun"))

    def begun(self, run: RunId) -> bool:
        """Return whether a node has begun a run."""
        return self.at("begun", key_of(run)).exists()

    def clear(self, run: RunId, shares: Iterable[int]) -> None:
        """Throw a run's files away."""
        key = key_of(run)
        files = [self.at(room, key) for room in ROOMS[:-1]] + [self.at("ends", f"{key}.{n}") for n in shares]
        for file in files:
            file.unlink(missing_ok=True)

    def forget_ends(self, run: RunId, shares: Iterable[int]) -> None:
        """Throw away how a run ended that begins again, and what it was given."""
        key = key_of(run)
        for file in [self.at("given", key), *(self.at("ends", f"{key}.{n}") for n in shares)]:
            file.unlink(missing_ok=True)

    def _write(self, room: str, name: str, text: str, *, lasting: bool = False) -> None:
        draft = self.at(room, f"{name}.{os.getpid()}.draft")
        with draft.open("w") as file:
            file.write(text)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.rename(draft, self.at(room, name))


def merged(ends: list[Ended]) -> Ended:
    """Make one end of those of a run's shares: the first that is not good says how it ended, all say what they wrote.

    >>> from rainbow.agent.executors.run import Result
    >>> merged([Ended(("t", 1), Result.EXITED, 0, "a"), Ended(("t", 1), Result.EXITED, 3, "b")])
    Ended(id=('t', 1), result=<Result.EXITED: 'exited'>, exit_code=3, output='ab', errors='', detail='', cause='')
    """
    first = next((end for end in ends if end.exit_code != 0), ends[0])
    output, keep = "".join(end.output for end in ends), max(TAIL, *(len(end.output) for end in ends))
    return Ended(first.id, first.result, first.exit_code, output[-keep:], "", first.detail, first.cause)


TICK = 0.05  # seconds between two looks at what runs
STOP_TICK = 0.5  # and at whether it is to end: that is a file of a shared folder
NATIVE = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", "FLUX_JOB_ID")
GIVEN_BY_NODE = ("SLURM", "PMI", "FLUX_", "PBS_", "LSB_", "CUDA_VISIBLE", "ROCR_VISIBLE")
OURS = ("SLURM_EXPORT_ENV", "SLURM_JWT")  # said for our own step; a credential
GIVEN = "RAINBOW_GIVEN"  # what Slurm says of the job and of its first node, where tasks are to be bound by that
NUMBER = "RAINBOW_JOB_ID"
RANK = ("SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK")


def main(folder: str, *words: str) -> None:
    """Run this node's share of a run of a folder; without one, become the command, bound to what its job has."""
    if folder:
        _run(SharedFolder(Path(folder)), *words)
    else:
        _become(words)


def _run(desk: SharedFolder, key: str, count: str) -> None:
    """Run this node's share, one of `count`, leave its end, and end as it did."""
    taken = desk.take(key)
    if taken is None:  # nobody waits for it any more
        return
    run, environment = taken
    native = _native()
    if native and not desk.claim(run.id, native):  # it was handed over twice, and the other job was faster
        return
    if desk.native(run.id) is None:
        desk.name(run.id, native or str(os.getppid()))
    if nodes := os.environ.get("SLURM_JOB_NODELIST", ""):
        desk.place(run.id, os.environ.get("SLURM_JOB_PARTITION", ""), nodes)
    if result := given_in(os.environ.get(GIVEN, "")):
        desk.give(run.id, result)
        run = replace(run, binding=result if _is_free_to_bind() else {})
    place, here = _share(run, int(count)) if count != "1" else (0, run)
    options = {
        name: value for name, value in os.environ.items() if name.startswith(GIVEN_BY_NODE) and name not in OURS
    }
    if "SLURM_JOB_ID" in os.environ:  # there Slurm says all of it
        run = replace(run, variables={NUMBER: run.variables[NUMBER]} if NUMBER in run.variables else {})
    site = run.request is not None  # it writes to the files of its job
    apart = 2 if site and (run.request or {}).get("system", {}).get("error") else None
    executor = LocalExecutor({**environment, **options}, copy=site, errors=apart)
    signal.signal(signal.SIGTERM, lambda *_: executor.stop(run.id))
    requests = (lambda: desk.is_asked_to_stop(run.id), lambda: desk.is_asked_to_hold(run.id))
    end = cgroups.judged_here(work(executor, here, *requests), os.environ.get("SLURM_JOB_ID", native))
    desk.end(place, end)
    sys.stdout.flush()
    os._exit(_code_of(end))  # what escaped from the run's group may hold a thread of ours


def _native() -> str:
    """Return how the resource manager calls our job; an element of an array by its array and index."""
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return next((os.environ[name] for name in NATIVE if name in os.environ), "")


_ON_NODES = re.compile(r"\bNodes=(\S+) CPU_IDs=(\S+) Mem=\S* GRES=(\S*)")
_GPUS = re.compile(r"\bgpu\S*?\(IDX:([\d,-]+)\)")
_THREADS = re.compile(r"\bThreadsPerCore=(\d+)")


def given_in(text: str) -> NodeDevices:
    """Read which cores and GPUs of which nodes a job has, from `scontrol -d -o show job` and `scontrol show node`.

    >>> given_in("Nodes=n[1-2] CPU_IDs=2-5 Mem=0 GRES=gpu:a100:1(IDX:1) ThreadsPerCore=2")["n2"]
    {'core': [1, 2], 'gpu': [1]}
    """
    result: NodeDevices = {}
    threads = int(said[1]) if (said := _THREADS.search(text)) else 1
    for nodes, cpus, gres in _ON_NODES.findall(text):
        cores = sorted({cpu // threads for cpu in expand_ids(cpus, MOST_LISTED) or ()})
        gpus = [gpu for ids in _GPUS.findall(gres) for gpu in expand_ids(ids, MOST_LISTED) or ()]
        for node in expand_hosts(nodes, MOST_LISTED) or ():
            result[node] = {"core": cores, **({"gpu": gpus} if gpus else {})}
    return result


def _is_free_to_bind() -> bool:
    """Return whether nobody has bound us already, as a plug-in of Slurm's does."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == os.cpu_count()


def _become(command: tuple[str, ...]) -> None:
    node = os.environ.get("SLURMD_NODENAME", "")
    run = Run(("", 1), "", command, binding=given_in(os.environ.pop(GIVEN, "")))
    if _is_free_to_bind() and (cpus := cpus_of(run, node)):
        os.sched_setaffinity(0, cpus)
        os.environ.update(binding_variables(run, {**os.environ, "RAINBOW_WORKER": node}, cpus))
    try:
        os.execvp(command[0], command)  # noqa: S606 - the task's own words, no shell
    except OSError as fault:
        sys.stderr.write(f"{command[0]}: {fault.strerror}\n")
        sys.exit(127 if isinstance(fault, FileNotFoundError) else 126)


def _code_of(end: Ended) -> int:
    """Return what the resource manager is to record: no task that failed is a job that was completed."""
    return end.exit_code if end.exit_code is not None else int(end.result is not Result.EXITED)


def work(
    executor: LocalExecutor, run: Run, is_to_stop: Callable[[], bool], is_to_hold: Callable[[], bool] | None = None
) -> Ended:
    """Start a run and return its end; it is held in place for as long as that is asked for."""
    if is_to_stop():
        return Ended(run.id, Result.STOPPED)
    executor.start(run)
    look = time.monotonic() + STOP_TICK
    while not (ended := executor.poll()):
        time.sleep(TICK)
        if time.monotonic() >= look:
            look = time.monotonic() + STOP_TICK
            if is_to_stop():
                executor.stop(run.id)
            elif is_to_hold:
                (executor.suspend if is_to_hold() else executor.resume)(run.id)
    return ended[0]


def _share(run: Run, count: int) -> tuple[int, Run]:
    """Return which share is this node's, and its part of the run: by name, else by the rank we were given.

    Where nothing was placed, every share is one process after `count` others, on a worker called as this node.
    """
    dealt = shares(run)
    names = [os.environ.get("SLURMD_NODENAME", ""), socket.gethostname(), socket.gethostname().partition(".")[0]]
    rank = int(next((os.environ[name] for name in RANK if name in os.environ), "0"))
    if len(dealt) != count:
        ranks = tuple(range(rank, run.processes, count))
        return rank, replace(run, ranks=ranks, placement={names[0] or names[2]: {}})
    for place, (worker, ranks) in enumerate(dealt):
        if worker in names:
            return place, replace(run, ranks=ranks)
    place = rank % len(dealt)
    return place, replace(run, ranks=dealt[place][1])
