"""Whether a job that waits can ever run, and whether it could run now, alone: its cluster's policy is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.scheduling import Answer, can_ever, can_now, policies
from rainbow.service.access import Caller
from rainbow.service.freezing import freeze
from rainbow.service.showing import visible_job, why
from rainbow.store import clusters

if TYPE_CHECKING:
    from rainbow.service.service import Service


def why_verified(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show the whole decision, and under `verify` both answers.

    None where the policy has nothing to decide: nothing waits, or something else comes first.
    """
    told = why(service, who, job_id)
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        cluster = clusters.get(connection, record.cluster_id)
    frozen = freeze(service, service.entry(cluster), quiet=True) if cluster else None
    if frozen is None or all(job.id != job_id for job in frozen.view.jobs):
        return {**told, "verify": None}
    policy, view = policies.get(frozen.record.policy), frozen.view
    answers = {"ever": can_ever(policy, view, job_id), "now": can_now(policy, view, job_id)}
    return {**told, "verify": {question: _told(answer) for question, answer in answers.items()}}


def _told(answer: Answer) -> dict[str, Any]:
    return {"can": answer.can, "text": answer.text, "facts": dict(answer.facts)}
