"""Processes of this machine, each in its own session, and the environment they see.

A run is ended by its process groups: TERM, and KILL after GRACE seconds; processes left behind in a group end with
it. Processes that begin their own session escape: the agent is not a container. Of the agent's environment a task
sees only an allow-list of variables; the agent's secret is not among them. Needs only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rainbow.agent.executors.process import NO_TAIL, FileTail, Process, Streams, Tail, by_popen, files_of, open_file
from rainbow.agent.executors.run import Ended, Result, Run, RunId, signal_name, workers_of

ALLOWED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"}
)
ALLOWED_PREFIX = "LC_"
# where a resource manager's own commands find their configuration and credentials; nothing that changes a request,
# as SBATCH_TIMELIMIT does
OF_MANAGERS = frozenset(
    {"SGE_ROOT", "SGE_CELL", "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "SGE_ARCH"}
    | {"SLURM_CONF", "SLURM_JWT", "PBS_CONF_FILE", "PBS_EXEC", "PBS_HOME", "PBS_SERVER", "PBS_DEFAULT", "KRB5CCNAME"}
    | {"LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR", "XLSF_UIDDIR", "FLUX_URI", "FLUX_CONF_DIR"}
)


def allowed(environment: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that tasks may see; `also` names further ones.

    >>> allowed({"PATH": "/bin", "LC_ALL": "C", "RAINBOW_SECRET": "rbs_1"})
    {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIX) or name in also
    }


def for_managers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the commands of a resource manager are started with.

    >>> for_managers({"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SBATCH_TIMELIMIT": "1"})
    {'PATH': '/bin', 'SLURM_CONF': '/etc/slurm.conf'}
    """
    return allowed(environment, OF_MANAGERS)


def of_processes(run: Run, base: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment of every process of a run that is started here, by rank."""
    own = {**run.variables, **base, **run.environment}
    shared = {name: value for name, value in own.items() if value is not None}
    workers = workers_of(run) or [""]
    for rank in run.ranks or range(run.processes):
        yield {
            **shared,
            **(_of_rank(rank, workers) if "SLURM_JOB_ID" in run.variables else {}),
            "RAINBOW_JOB": run.job,
            "RAINBOW_TASK": run.id[0],
            "RAINBOW_TASK_RANK": str(rank),
            "RAINBOW_TASK_COUNT": str(run.processes),
            "RAINBOW_WORKER": workers[rank % len(workers)],
        }


def _of_rank(rank: int, workers: Sequence[str]) -> dict[str, str]:
    """Return what a process of a script sees of its place, in the words of Slurm."""
    place, own = rank % len(workers), {"SLURM_PROCID": rank, "SLURM_LOCALID": rank // len(workers)}
    uid = {"SLURM_JOB_UID": os.getuid()}
    said = {name: str(value) for name, value in {**own, "SLURM_NODEID": place, **uid}.items()}
    return {**said, "SLURMD_NODENAME": workers[place] or os.uname().nodename}


CPUS = Path("/sys/devices/system/cpu")
GRACE = 5.0  # seconds between TERM and KILL
LINGER = 0.5  # seconds to wait for output held open by what escaped from the group
LONGEST_LINGER = 30.0  # and where output is there but a busy machine has not let us read it


@dataclass(slots=True)
class _Active:
    """A run and its processes. `ending` is why it is being ended, `kill_at` when TERM was not enough."""

    run: Run
    tail: Tail
    deadline: float
    errors: FileTail | None = None
    processes: list[Process] = field(default_factory=list)
    swept: set[int] = field(default_factory=set)  # ranks whose left-behind group is gone
    ending: Result | None = None
    kill_at: float = float("inf")
    term_at: float = float("inf")  # when its warning was not enough
    quiet_at: float = float("inf")  # when the wait for more output is over
    fault: str = ""
    no_folder: bool = False  # its working directory is not there, or may not be entered
    held_at: float | None = None  # since when it is suspended
    scratch: str = ""  # the folder of this run alone, removed at its end


class LocalExecutor:
    """Runs tasks as processes of this machine, as the agent's own user."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        grace: float = GRACE,
        clock: Callable[[], float] = time.monotonic,
        inside: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        tail: Callable[[], Tail] | None = None,
        copy: bool = False,
        spawn: Callable[[Run, Mapping[str, str], Streams], Process] = by_popen,
        errors: int | None = None,
    ) -> None:
        self.environment = environment
        self._inside = inside  # in which processes are started: they inherit it
        self._tail = tail or partial(Tail, 1 if copy else None)  # what runs write goes to our own output, too
        self._spawn = spawn
        self._errors = errors  # a descriptor for standard error; None: it goes with the rest
        self._grace = grace
        self._clock = clock
        self._active: dict[RunId, _Active] = {}
        self._begun: list[RunId] = []

    def start(self, run: Run) -> None:
        """Start every process of a run; if one cannot be started, the others are ended."""
        deadline = self._clock() + run.duration if run.duration > 0 else float("inf")
        active = self._active[run.id] = _Active(run, NO_TAIL, deadline)
        streams: list[int] = []
        before = os.umask(run.umask) if run.umask >= 0 else -1
        try:
            streams = self._open(active)
            own = _scratch_of(active, self.environment)
            with self._inside():
                if not run.command:
                    raise ValueError("no command given")
                for environment in of_processes(run, self.environment):
                    environment |= own
                    with _bound_to(cpus := cpus_of(run, environment["RAINBOW_WORKER"])):
                        answer = {**environment, **binding_variables(run, environment, cpus)}
                        active.processes.append(self._spawn(run, answer, (streams[0], streams[1], streams[2])))
            self._begun.append(run.id)
        except (OSError, ValueError) as error:  # ValueError: a NUL, or no file name
            active.fault = _fault(run, error)
            active.no_folder = isinstance(error, OSError) and bool(run.cwd) and error.filename == run.cwd
            active.ending = Result.FAILED
            _signal(active, signal.SIGKILL)
        finally:
            if before >= 0:
                os.umask(before)
            for stream in set(streams) - {self._errors}:
                os.close(stream)

    def _open(self, active: _Active) -> list[int]:
        """Return the descriptors a run starts with: of the files that its job names, else of our own."""
        run, options = active.run, files_of(active.run, self.environment)
        source = open_file(options.get("input", Path(os.devnull)), os.O_RDONLY)
        try:
            active.tail = FileTail(options["output"]) if "output" in options else self._tail()
            active.tail.keep = max(1, run.output)
            if "error" not in options:
                return [source, active.tail.writer, active.tail.writer if self._errors is None else self._errors]
            active.errors = FileTail(options["error"])
        except ValueError:
            os.close(source)
            raise
        active.errors.keep = active.tail.keep
        return [source, active.tail.writer, active.errors.writer]

    def poll(self) -> Sequence[Ended]:
        """Return what has ended, after ending what is over its limit."""
        now = self._clock()
        for active in self._active.values():
            self._hold_to_limit(active, now)
        ended = [_ended(active) for active in self._active.values() if _is_over(active, now)]
        for one in ended:
            _remove(self._active.pop(one.id).scratch)
        return ended

    def begun(self) -> Sequence[RunId]:
        """Return what has been started since the last call."""
        begun, self._begun = self._begun, []
        return begun

    def stop(self, run: RunId) -> None:
        """Send TERM to a run's processes; `poll` sends KILL if they do not mind."""
        if run in self._active:
            self._end(self._active[run], Result.STOPPED, self._clock())

    def warn(self, run: RunId, name: str, grace: float) -> None:
        """Send a signal to a run's processes; `poll` sends TERM so many seconds later, and KILL as `stop` does."""
        active = self._active.get(run)
        if active and active.ending is None and any(process.poll() is None for process in active.processes):
            active.ending, active.term_at = Result.STOPPED, self._clock() + grace
            _signal(active, _number(name))
            self._wake(active)

    def end(self, run: RunId, grace: float) -> None:
        """Do what `stop` does, with so many seconds between TERM and KILL."""
        if run in self._active:
            self._end(self._active[run], Result.STOPPED, self._clock())
            self._active[run].kill_at = min(self._active[run].kill_at, self._clock() + grace)

    def due(self) -> float:
        """Return when something is to be done if nothing happens before, by the executor's clock."""
        times = [
            min(a.deadline if a.held_at is None else a.kill_at, a.term_at, a.kill_at) for a in self._active.values()
        ]
        return min(times, default=float("inf"))

    def is_ending(self) -> bool:
        """Return whether some run has begun to end, by itself or because it must."""
        return any(
            active.ending or any(process.poll() is not None for process in active.processes)
            for active in self._active.values()
        )

    def owns(self, pid: int) -> bool:
        """Return whether a process is one that a run was started with."""
        return any(process.pid == pid for active in self._active.values() for process in active.processes)

    def suspend(self, run: RunId) -> None:
        """Send STOP to a run's process groups; its time stands still from now on."""
        active = self._active.get(run)
        if active and active.held_at is None and active.ending is None:
            active.held_at = self._clock()
            _signal(active, signal.SIGSTOP)

    def resume(self, run: RunId) -> None:
        """Send CONT to a run's process groups."""
        active = self._active.get(run)
        if active and active.held_at is not None:
            active.deadline += self._clock() - active.held_at
            active.held_at = None
            _signal(active, signal.SIGCONT)

    def running(self) -> Sequence[RunId]:
        """Return the runs that have not been told as ended."""
        return list(self._active)

    def close(self) -> None:
        """Kill everything."""
        for active in self._active.values():
            _signal(active, signal.SIGKILL)
            for process in active.processes:
                process.wait()
            _remove(active.scratch)
        self._active.clear()

    def _hold_to_limit(self, active: _Active, now: float) -> None:
        if now >= active.deadline and active.held_at is None:
            self._end(active, Result.TIMED_OUT, now)
        if now >= active.term_at:
            active.term_at, active.kill_at = float("inf"), now + self._grace
            _signal(active, signal.SIGTERM)
        if now >= active.kill_at:
            _signal(active, signal.SIGKILL)

    def _end(self, active: _Active, why: Result, now: float) -> None:
        # a run that has just ended by itself keeps its own end
        if active.ending is None and any(process.poll() is None for process in active.processes):
            active.ending = why
            active.kill_at = now + self._grace
            _signal(active, signal.SIGTERM)
            self._wake(active)

    def _wake(self, active: _Active) -> None:
        if active.held_at is not None:  # what is stopped cannot mind a signal
            active.held_at = None
            _signal(active, signal.SIGCONT)


def _scratch_of(active: _Active, environment: Mapping[str, str]) -> dict[str, str]:
    """Make the folder of a script for what it needs while it runs, and say where it is."""
    if "SLURM_JOB_ID" not in active.run.variables:
        return {}
    number = active.run.variables["SLURM_JOB_ID"]
    base = environment.get("TMPDIR") or "/tmp"  # noqa: S108 - of this machine
    path = os.path.join(base, f"rainbow-{number}-{os.getpid()}-{len(active.run.ranks)}-{os.urandom(6).hex()}")
    os.mkdir(path, 0o700)
    active.scratch = path
    return {"TMPDIR": path, "SLURM_TMPDIR": path}


def _remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as we may."""
    if not folder:
        return
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(parent, name))
        for name in folders:
            path = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                (os.unlink if os.path.islink(path) else os.rmdir)(path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def cpus_of(run: Run, worker: str) -> tuple[int, ...]:
    """Return the hardware threads that a run holds of a worker, if that is this machine and has them; else none."""
    here = {os.uname().nodename, os.uname().nodename.partition(".")[0], os.environ.get("SLURMD_NODENAME", "")} - {""}
    places = run.binding.get(worker, {}).get("core", ()) if worker in here else ()
    threads = cores_here() if places else []
    if not places or places[-1] >= len(threads):
        return ()
    return tuple(sorted(cpu for place in places for cpu in threads[place]))


def cores_here() -> list[list[int]]:
    """Return the hardware threads of every core that this process may use, cores by their first thread."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    results: dict[tuple[str, ...], list[int]] = {}
    for cpu in usable:
        topology = CPUS / f"cpu{cpu}" / "topology"
        key = (_read(topology / "physical_package_id"), _read(topology / "core_id") or f"cpu{cpu}")
        results.setdefault(key, []).append(cpu)
    return list(results.values())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@contextlib.contextmanager
def _bound_to(cpus: Collection[int]) -> Iterator[None]:
    """Let what is started meanwhile inherit these hardware threads alone; none: as we are."""
    before = os.sched_getaffinity(0) if cpus else set[int]()
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        if cpus:
            os.sched_setaffinity(0, before)


def binding_variables(run: Run, environment: Mapping[str, str], cpus: Collection[int]) -> dict[str, str]:
    """Say what a process is bound to; the number of its threads, unless the job has said that."""
    if not cpus:
        return {}
    held = run.binding[environment["RAINBOW_WORKER"]]
    gpus = ",".join(map(str, held.get("gpu", ())))
    seen = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), gpus) if gpus else {}
    threads = environment.get("OMP_NUM_THREADS") or str(max(1, len(held["core"]) // max(1, run.processes)))
    return {"RAINBOW_CPUS": ",".join(map(str, cpus)), "OMP_NUM_THREADS": threads, **seen}


def _fault(run: Run, error: Exception) -> str:
    if not isinstance(error, OSError):
        return f"failed to start: {error}"
    if run.cwd and error.filename == run.cwd:
        return f"cannot be started in {run.cwd!r}: {error.strerror}"
    return f"cannot start {run.command[0]!r}: {error.strerror}"


def _number(name: str) -> int:
    """Return the number of a signal; TERM for one that this system does not have."""
    result: int = getattr(signal, f"SIG{name}", signal.SIGTERM)
    return result


def _signal(active: _Active, number: int) -> None:
    for process in active.processes:
        if process.poll() is None:
            _signal_group(process, number)


def _signal_group(process: Process, number: int) -> None:
    # the session's leader is the process itself, so its group has the same number
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _is_over(active: _Active, now: float) -> bool:
    for rank, process in enumerate(active.processes):
        if process.poll() is not None and rank not in active.swept:
            active.swept.add(rank)
            _signal_group(process, signal.SIGKILL)
    if len(active.swept) < len(active.processes):
        return False
    active.quiet_at = min(active.quiet_at, now + LINGER)
    if active.tail.complete:
        return True
    return now >= active.quiet_at and (not active.tail.behind or now >= active.quiet_at + LONGEST_LINGER)


def _ended(active: _Active) -> Ended:
    result = active.ending or Result.EXITED
    if result is Result.FAILED:
        cause = "directory" if active.no_folder else ""
        return Ended(active.run.id, result, detail=active.fault, cause=cause)
    code = next((process.returncode for process in active.processes if process.returncode), 0)
    written = (active.tail.text, active.errors.text if active.errors else "")
    return Ended(active.run.id, result, _shell_code(code), *written, _detail(active, result, code))


def _shell_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def _detail(active: _Active, result: Result, code: int) -> str:
    if result is Result.TIMED_OUT:
        return f"killed: exceeded its time limit of {active.run.duration:g} seconds"
    if result is Result.EXITED and code < 0:
        return f"killed by {signal_name(-code)}"
    return ""


MARK = "RAINBOW_AGENT"  # a task sees whose it is, and not where that is


TIMES = 20  # that it is looked again: what is killed may have begun others a moment before


def sweep(value: str, task: str = "") -> None:
    """Kill every process of this machine that is marked so, of one task or of all: who watched it was killed.

    Needs /proc.
    """
    marks = {f"{MARK}={value}".encode(), *([f"RAINBOW_TASK={task}".encode()] if task else [])}
    for _ in range(TIMES):
        if not sum([_kill(entry, marks) for entry in Path("/proc").glob("[0-9]*")]):
            return


def _kill(entry: Path, marks: set[bytes]) -> bool:
    with contextlib.suppress(OSError):
        if marks <= set((entry / "environ").read_bytes().split(b"\0")):
            os.kill(int(entry.name), signal.SIGKILL)
            return True
    return False
