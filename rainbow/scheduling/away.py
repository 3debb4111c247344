"""Which workers take no tasks, in words: "2 of 4 workers are offline (node0, node1), 2 lost (node2, node3)"."""

from __future__ import annotations

from itertools import islice
from typing import Any

from rainbow.jobs import WorkerState
from rainbow.scheduling.census import Census

NAMED = 5  # workers that are called by name


def told(census: Census) -> str:
    """Say how many workers are in which state that takes no tasks; "" if all of them are ready."""
    of = len(census.workers)
    counts = {state: len(census.away[state]) for state in WorkerState if state in census.away}
    if not counts:
        return "" if of else "the cluster has no workers"
    left, parts = NAMED, []
    for state, count in counts.items():
        parts.append(f"{_word(state)}{_names(census, state, left)}")
        left -= min(left, count)
    if len(counts) == 1 and of in counts.values():
        return f"all {of} workers are {parts[0]}" if of > 1 else f"its only worker is {parts[0]}"
    first, *others = counts.values()
    verb = "is" if first == 1 else "are"
    others_told = [f"{count} {part}" for count, part in zip(others, parts[1:], strict=True)]
    return ", ".join([f"{first} of {of} workers {verb} {parts[0]}", *others_told])


def facts(census: Census) -> dict[str, Any]:
    """Return the same as facts."""
    states = {str(state): len(ranked) for state, ranked in sorted(census.away.items())}
    return {"workers": len(census.workers), "states": states}


def _word(state: WorkerState) -> str:
    return "not yet seen by an agent" if state is WorkerState.NEW else state.lower()


def _names(census: Census, state: WorkerState, most: int) -> str:
    ranked = census.away[state]
    names = [name for _, name in islice(ranked.items(), most)]
    more = ["…"] if len(names) < len(ranked) else []
    return f" ({', '.join(names + more)})" if names else ""
