"""What this server would do with a submit, for a router that compares several servers; nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rainbow.selection import read_of, reads_states
from rainbow.selection.rank import Standing
from rainbow.selection.variables import SAME
from rainbow.service.core.access import Caller
from rainbow.service.placement.candidates import DigestedText, without_agent
from rainbow.service.placement.submission import Submission, key_of
from rainbow.service.placement.submit import Decision, SubmitTransaction, new_id, prepare
from rainbow.store import jobs

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


def bid(service: Service, who: Caller, submission: Submission) -> dict[str, Any]:
    """Decide where a job would go here, as `submit` does; a refusal is part of the answer, other faults are raised.

    earlier     whether there is a job of the Idempotency-Key
    policy      a digest of selector and options: bids by others cannot be compared
    steady      whether it reads no states, and holds while graphs, credentials and agents are the same
    standing    what is compared, None if no cluster takes the job
    stated      the variables it may read that candidates state
    """
    new = prepare(service, who, submission)
    with service.store.read() as connection:
        earlier = submission.key is not None and jobs.by_idempotency(connection, key_of(submission)) is not None
        decided = new.decide_new(connection, new_id())
        alone = _is_alone(service, connection, new, decided)
    chosen, standing = decided.choice.cluster, Standing.of(decided.choice, alone=alone)
    return {
        "earlier": earlier,
        "policy": DigestedText.of([new.selector, _known_elsewhere_left_out(new.options)]).digest,
        "steady": not reads_states(new.selector),
        "candidates": len(new.match.candidates),
        "standing": standing and asdict(standing),
        "stated": _stated(new, decided.facts.values),
        "queues": new.queues,
        "refusal": new.refusal(decided) if chosen is None else None,
    }


def _is_alone(service: Service, connection: sa.Connection, new: SubmitTransaction, decided: Decision) -> bool:
    """Return whether a choice was made among clusters without an agent, too."""
    return "unattended" not in decided.answer and bool(without_agent(service, connection, new.match.ids))


def _known_elsewhere_left_out(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "stated"}


def _stated(new: SubmitTransaction, states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name what candidates state of the variables that the decision may read, by both of their names."""
    stated = set[str]().union(*states.values())
    return sorted(read_of(new.selector, new.options, stated | {SAME[name] for name in stated & SAME.keys()}))
