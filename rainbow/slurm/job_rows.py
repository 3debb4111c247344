"""A job, or an element of an array, as Slurm's commands show it: its state, code, reason and place in their words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rainbow.jobspec.batch import ids_text
from rainbow.jobspec.hostlist import fold_hosts
from rainbow.jobspec.request import Numbers

SHORT = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "TIMEOUT": "TO",
    "OUT_OF_MEMORY": "OOM",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "DEADLINE": "DL",
}
LONG = {short: state for state, short in SHORT.items()}
ACTIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING"})
_OTHERS = {"BOOT_FAIL", "REQUEUED", "RESIZING", "REVOKED", "SIGNALING", "STAGE_OUT", "STOPPED", "CONFIGURING"}
_OTHERS |= {"BF", "RQ", "RS", "RV", "SI", "SO", "ST", "CF", "SPECIAL_EXIT", "SE", "RESV_DEL_HOLD", "RD"}
_OTHERS |= {"REQUEUE_FED", "RF", "REQUEUE_HOLD", "RH"}
_STATES = {
    "WAITING": "PENDING",
    "ASSIGNED": "PENDING",
    "ACCEPTED": "PENDING",
    "RUNNING": "RUNNING",
    "SUSPENDED": "SUSPENDED",
    "STOPPING": "COMPLETING",
    "COMPLETED": "COMPLETED",
    "FAILED": "FAILED",
    "TIMED_OUT": "TIMEOUT",
    "CANCELED": "CANCELLED",
}
_CAUSES = {
    "memory": "OUT_OF_MEMORY",
    "node": "NODE_FAIL",
    "lost": "NODE_FAIL",
    "preempted": "PREEMPTED",
    "deadline": "DEADLINE",
}
_WAITS = {
    "dependency": "Dependency",
    "begin-time": "BeginTime",
    "array-limit": "JobArrayTaskLimit",
    "suspended": "JobHeldUser",
    "drained": "ReqNodeNotAvail",
    "no-agent": "ReqNodeNotAvail",
    "agent-silent": "ReqNodeNotAvail",
    "no-worker-ready": "ReqNodeNotAvail",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One line. Times in seconds since 1970; `index` of an element, `waiting` of those that wait in one line."""

    number: int
    array: int
    name: str
    user: str
    state: str
    reason: str = "None"
    uid: int = 0
    gid: int = 0
    index: int | None = None
    waiting: Numbers | None = None
    at_once: int = 0
    code: int = 0
    signal: int = 0
    account: str = ""
    qos: str = ""
    cluster: str = ""
    partition: str = ""
    nodes: Sequence[str] = ()
    node_count: int = 1
    cores: int = 1
    tasks: int = 1
    memory: int = 0  # MiB of a node
    gpus: int = 0
    submit: float = 0.0
    start: float | None = None
    end: float | None = None
    begin: float | None = None  # not before
    run: float = 0.0
    limit: float = 0.0
    priority: int = 0
    comment: str = ""
    folder: str = ""
    command: str = ""
    output: str = ""
    error: str = ""
    input: str = ""
    dependency: str = ""
    requeue: bool = False
    restarts: int = 0
    place: int = 0  # among the elements of its array
    job: str = ""  # the id of its job

    @property
    def id(self) -> str:
        """How it is called: N, N_K of an element, N_[K-L%M] of elements that wait."""
        if self.waiting is not None:
            limit = f"%{self.at_once}" if self.at_once else ""
            return f"{self.array}_[{ids_text(self.waiting)}{limit}]"
        return str(self.number) if self.index is None else f"{self.array}_{self.index}"

    @property
    def index_text(self) -> str:
        """The index of an element, those of elements that wait, or N/A."""
        if self.waiting is not None:
            return ids_text(self.waiting) + (f"%{self.at_once}" if self.at_once else "")
        return "N/A" if self.index is None else str(self.index)

    @property
    def node_list(self) -> str:
        """The nodes it has, folded."""
        return fold_hosts(self.nodes) if self.nodes else ""


def read_states(words: Iterable[str], wrong: Callable[[str], Exception]) -> set[str]:
    """Read states as commands take them: long or short, in any letters; those that nothing here is ever in, too.

    >>> sorted(read_states(["r", "Pending", "CF"], ValueError))
    ['PENDING', 'RUNNING']
    """
    result = set[str]()
    for word in words:
        state = LONG.get(word.upper(), word.upper())
        if state == "ALL":
            result |= SHORT.keys()
        elif state in SHORT:
            result.add(state)
        elif state not in _OTHERS:
            raise wrong(word)
    return result


def state_of(task_state: str, cause: str) -> str:
    """Return the state of a task in Slurm's words; nothing is ever in another one.

    >>> state_of("FAILED", "memory"), state_of("CANCELED", "preempted"), state_of("STOPPING", "")
    ('OUT_OF_MEMORY', 'PREEMPTED', 'COMPLETING')
    """
    state = _STATES[task_state]
    return _CAUSES.get(cause, state) if state in ("FAILED", "CANCELLED") else state


_WORST = [
    *("PENDING", "COMPLETED", "CANCELLED", "PREEMPTED", "DEADLINE", "TIMEOUT", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "COMPLETING", "SUSPENDED", "RUNNING"),
]


def whole_state(states: Collection[str], unended: str | None) -> str:
    """Return the state of a job of several tasks: the worst end; `unended`: how the job is if it has not ended."""
    ended = [state for state in states if state not in ACTIVE]
    if unended is None:
        return max(ended or ["COMPLETED"], key=_WORST.index)
    present = [state for state in states if state in ACTIVE and state != "PENDING"]
    return max(present or ["PENDING" if not ended else "RUNNING"], key=_WORST.index)


def code_and_signal(code: int | None, state: str) -> tuple[int, int]:
    """Return the exit code and the signal as Slurm keeps them.

    >>> code_and_signal(3, "FAILED"), code_and_signal(137, "FAILED"), code_and_signal(143, "CANCELLED")
    ((3, 0), (0, 9), (0, 0))
    """
    if state in ("CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE") or state in ACTIVE:
        return 0, 0
    if state == "OUT_OF_MEMORY":
        return 0, 125
    if state in ("FAILED", "NODE_FAIL") and not code:
        return 1, 0  # it could not be started, or nobody knows
    result = code or 0
    return (0, result - 128) if 128 < result < 128 + 65 else (result, 0)


def end_reason(state: str, *, begun: bool) -> str:
    """Return why a job ended so."""
    if state == "FAILED":
        return "NonZeroExitCode" if begun else "JobLaunchFailure"
    return {"TIMEOUT": "TimeLimit", "NODE_FAIL": "NodeDown", "OUT_OF_MEMORY": "OutOfMemory"}.get(state, "None")


def wait_reason(code: str, *, held: bool) -> str:
    """Return why a job waits, in one of Slurm's words: a site's own where that says it."""
    if held:
        return "JobHeldUser"
    return _WAITS.get(code, "Priority" if code in ("priority", "order", "behind", "turn") else "Resources")


def together(rows: Sequence[JobRow]) -> list[JobRow]:
    """Put the elements of an array that wait into one line, after Slurm's manner: the line has the array's number."""
    job_rows: list[JobRow] = []
    waiting: dict[tuple[int, str], list[JobRow]] = {}
    for row in rows:
        if row.index is None or row.state != "PENDING":
            job_rows.append(row)
        elif (row.array, row.reason) in waiting:
            waiting[row.array, row.reason].append(row)
        else:
            waiting[row.array, row.reason] = [row]
            job_rows.append(row)
    return [_line(row, waiting.get((row.array, row.reason), [row])) if _waits(row) else row for row in job_rows]


def _waits(row: JobRow) -> bool:
    return row.index is not None and row.state == "PENDING"


def _line(first: JobRow, rows: Sequence[JobRow]) -> JobRow:
    indices = sorted(row.index for row in rows if row.index is not None)
    return replace(first, number=first.array, index=None, waiting=numbers_of(indices))


def numbers_of(indices: Sequence[int]) -> Numbers:
    """Return ascending indices as spans: equal steps of three or more are one.

    >>> ids_text(numbers_of([1, 2, 3, 7, 9, 11, 20]))
    '1-3,7-11:2,20'
    """
    spans: list[range] = []
    begin = 0
    while begin < len(indices):
        end = begin + 1
        step = indices[end] - indices[begin] if end < len(indices) else 1
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        if step > 1 and end - begin < 3:
            end = begin + 1
        spans.append(range(indices[begin], indices[end - 1] + 1, step if end - begin > 1 else 1))
        begin = end
    return Numbers(tuple(spans))


@dataclass(frozen=True, slots=True)
class NodeRow:
    """Nodes of one cluster in one state. `total`, `free`: cores; `memory` MiB and `gpus` of a node."""

    partition: str
    state: str
    names: Sequence[str] = field(default_factory=tuple)
    total: int = 0
    free: int = 0
    memory: int = 0
    gpus: int = 0
    up: bool = True
