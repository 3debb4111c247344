"""Dependencies of a job on other jobs and on the clock (RFC 26), and of tasks on tasks of the same job.

    after        the job has started             afterok      it has completed
    afterany     it has ended, however           afternotok   it has ended, and not completed
    begin-time   the time has come

A dependency that can no longer be met ends the job that has it. What
`string` and `fluid` name was settled when the job was submitted: by then it is a job that must end.

Within a job (`depends_on`) a task depends on tasks or groups of tasks by name; it starts when all of them have
completed. When one of them ends otherwise, what depends on it is canceled, and what depends on that in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.state_machine import ENDED, JobState, TaskState

if TYPE_CHECKING:
    from rainbow.jobspec import Dependency
    from rainbow.scheduling.gangs import Gang, GangTask


BY_JOB = frozenset({"after", "afterany", "afterok", "afternotok"})
BEGIN = "begin-time"
WORDS = {
    "after": "to start",
    "afterany": "to end",
    "afterok": "to complete",
    "afternotok": "to end without completing",
}
_ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELED})


@dataclass(frozen=True, slots=True)
class Target:
    """The state of another job; `started`: some task of it runs or has run."""

    state: JobState
    started: bool


@dataclass(frozen=True, slots=True)
class DependencyState:
    """What is not met yet of a job's dependencies; `never` says which can no longer be, and why."""

    waits: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    until: float | None = None
    never: str = ""


def awaited(dependencies: Iterable[Dependency], find: Callable[[str], Target | None], now: float) -> DependencyState:
    """Say what is left to wait for; `find` names the state of a job, None if it is not known any more.

    >>> from rainbow.jobspec import Dependency
    >>> awaited([Dependency("afterok", "7")], lambda _: Target(JobState.RUNNING, True), 0.0).waits
    ('job 7 to complete',)
    """
    waits: list[str] = []
    jobs: list[str] = []
    until = None
    for one in dependencies:
        if one.scheme == BEGIN and float(one.value) > now:
            until = max(until or 0.0, float(one.value))
        if one.scheme in BY_JOB:
            target = find(one.value)
            met = target is not None and _met(one.scheme, target)
            if target is None or (target.state in _ENDED and not met):
                return DependencyState(never=_never(one, target))
            if not met:
                waits.append(f"job {one.value} {WORDS[one.scheme]}")
                jobs.append(one.value)
    return DependencyState(tuple(waits), tuple(jobs), until)


def _met(scheme: str, target: Target) -> bool:
    if scheme == "after":
        return target.started
    if target.state not in _ENDED:
        return False
    return scheme == "afterany" or (target.state is JobState.COMPLETED) == (scheme == "afterok")


def _never(one: Dependency, target: Target | None) -> str:
    stands = "is not known" if target is None else f"is {target.state}"
    return f"dependency can never be met: waiting for job {one.value} {WORDS[one.scheme]}, but it {stands}"


def called(task: GangTask) -> set[str]:
    """Return the names by which others may depend on a task: its own, that of its copies, its group's."""
    return {name for name in (task.name, task.spec.name, task.spec.group) if name}


def waits_for(gang: Gang, unended: Iterable[GangTask]) -> list[str]:
    """Name what a gang depends on and has not ended; empty if it may start."""
    if not any(task.spec.depends_on for task in gang.tasks):
        return []  # before the others are looked at: there may be very many
    own = {task.index for task in gang.tasks}
    others = [task for task in unended if task.index not in own]
    requirements = {name for task in gang.tasks for name in task.spec.depends_on}
    return sorted(requirements & {name for task in others for name in called(task)})


def never_started(tasks: Mapping[int, GangTask], states: Mapping[int, TaskState]) -> dict[int, str]:
    """Return {index: name of what failed it} of waiting tasks that depend on one that ended badly."""
    doomed: dict[int, str] = {}
    bad = {index for index, state in states.items() if state in ENDED and state is not TaskState.COMPLETED}
    waiting = [index for index, state in states.items() if state is TaskState.WAITING]
    while True:
        named = {name: tasks[index].name for index in sorted(bad) for name in called(tasks[index])}
        results = {
            i: named[name] for i in waiting if i not in bad for name in tasks[i].spec.depends_on if name in named
        }
        if not results:
            return doomed
        doomed |= results
        bad |= set(results)
