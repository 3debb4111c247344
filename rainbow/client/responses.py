"""Types of the server's answers; an answer may have more keys than these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class Registration(TypedDict):
    """A new cluster. `token` and `secret` are shown this once."""

    name: str
    token: str
    secret: str
    revision: int
    totals: dict[str, int]  # in the units that `units` names
    units: dict[str, str]


class Submission(TypedDict):
    """A job and the decision that led to its cluster; None: it waits for one, and `wait` says why."""

    id: str
    number: int
    cluster: str | None
    state: str
    decision: dict[str, Any]
    wait: NotRequired[dict[str, Any]]


class Match(TypedDict):
    """Which clusters could run a jobspec (cluster, fits, totals), why others could not, and which are undecided."""

    candidates: list[dict[str, Any]]
    refusals: list[dict[str, Any]]
    undecided: list[dict[str, Any]]


class RunRef(TypedDict):
    """One attempt at a task, as the agent's messages name it."""

    id: str
    attempt: int


class Offer(RunRef):
    """A task the server wants this agent to run; `duration` in seconds, 0 for no limit.

    `placement` says {worker: {type: amount}}, in the units that `units` names: {"memory": "B"}. Under the policy
    delegate it is empty, and `request` says what the task asks for. `binding` says which of a worker's cores and GPUs
    the task holds, as it counts them: {worker: {"core": "0-5"}}; where that is not known, nothing.
    """

    job: str
    name: str
    command: list[str]
    cwd: str
    submitted_from: str
    environment: dict[str, str | None]
    duration: float
    processes: int
    placement: dict[str, dict[str, int]]
    units: dict[str, str]
    output: NotRequired[int]
    files: NotRequired[Mapping[str, str]]
    binding: NotRequired[dict[str, dict[str, str]]]
    request: NotRequired[dict[str, Any]]
    variables: NotRequired[dict[str, str]]
    umask: NotRequired[str]


class Received(TypedDict):
    """New offers, tasks that must stop, be held or continue, and how long the server goes without a heartbeat.

    `jobs` ({id, name, requestor, jobspec}) are sent to takers of whole jobs; `checks` are jobs to come, of which the
    agent asks its site whether that would take them.
    """

    tasks: list[Offer]
    stop: list[RunRef]
    suspend: NotRequired[list[RunRef]]
    resume: NotRequired[list[RunRef]]
    withdraw: NotRequired[list[RunRef]]
    lease: float
    grace: NotRequired[float]
    checks: NotRequired[list[Offer]]
    jobs: NotRequired[list[dict[str, Any]]]


class Accepted(TypedDict):
    """Which offers the agent may start (ids), and why not the others ({id, reason})."""

    accepted: list[str]
    refused: list[dict[str, str]]


class Event(TypedDict):
    """Something that happened to a task.

    `event` is pending, started, placed, site, output, suspended, resumed, unable, ended or checked:
    docs/reference-agent.md.
    """

    task: str
    attempt: int
    event: str
    code: NotRequired[str]
    text: NotRequired[str]
    facts: NotRequired[dict[str, Any]]
    binding: NotRequired[dict[str, dict[str, str]]]
    result: NotRequired[str]
    exit_code: NotRequired[int]
    output: NotRequired[str]
    errors: NotRequired[str]
    detail: NotRequired[str]
    cause: NotRequired[str]
    number: NotRequired[str]
    partition: NotRequired[str]
    nodes: NotRequired[str]


class Recorded(TypedDict):
    """Ids of tasks whose events are stored, and of tasks that are no longer this agent's."""

    recorded: list[str]
    stale: list[str]


class Beat(TypedDict):
    """The answer to a heartbeat."""

    stop: list[RunRef]
    suspend: NotRequired[list[RunRef]]
    resume: NotRequired[list[RunRef]]
    withdraw: NotRequired[list[RunRef]]
    stale: list[str]
    lease: float
    grace: NotRequired[float]
