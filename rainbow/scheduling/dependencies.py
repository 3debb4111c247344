"""Which gangs must wait for others of their job, and which can never start (`depends_on`).

A task depends on tasks or groups of tasks by name; it starts when all of them have completed. When one of them
ends otherwise, what depends on it is canceled, and what depends on that in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rainbow.jobs import ENDED, TaskState

if TYPE_CHECKING:
    from rainbow.scheduling.gangs import Gang, GangTask


def called(task: GangTask) -> set[str]:
    """Return the names by which others may depend on a task: its own, that of its copies, its group's."""
    return {name for name in (task.name, task.spec.name, task.spec.group) if name}


def waits_for(gang: Gang, unended: Iterable[GangTask]) -> list[str]:
    """Name what a gang depends on and has not ended; empty if it may start."""
    if not any(task.spec.depends_on for task in gang.tasks):
        return []  # before the others are looked at: there may be very many
    own = {task.index for task in gang.tasks}
    others = [task for task in unended if task.index not in own]
    wanted = {name for task in gang.tasks for name in task.spec.depends_on}
    return sorted(wanted & {name for task in others for name in called(task)})


def never_started(tasks: Mapping[int, GangTask], states: Mapping[int, TaskState]) -> dict[int, str]:
    """Return {index: name of what failed it} of waiting tasks that depend on one that ended badly."""
    doomed: dict[int, str] = {}
    bad = {index for index, state in states.items() if state in ENDED and state is not TaskState.COMPLETED}
    waiting = [index for index, state in states.items() if state is TaskState.WAITING]
    while True:
        named = {name: tasks[index].name for index in sorted(bad) for name in called(tasks[index])}
        found = {
            i: named[name] for i in waiting if i not in bad for name in tasks[i].spec.depends_on if name in named
        }
        if not found:
            return doomed
        doomed |= found
        bad |= set(found)
