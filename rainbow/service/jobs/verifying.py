"""Whether a job that waits can ever run, and whether it could run now, alone: its cluster's policy is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.scheduling import Answer, can_ever, can_now, policies
from rainbow.service.access import Caller
from rainbow.service.jobs.explaining import why_now
from rainbow.service.jobs.showing import visible_job
from rainbow.service.steps.following import mirrored
from rainbow.service.steps.freezing import freeze
from rainbow.store import clusters

if TYPE_CHECKING:
    from rainbow.service.service import Service


def why_verified(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show the whole decision, and under `verify` both answers.

    None where the policy has nothing to decide: nothing waits, or something else comes first.
    """
    told = why_now(service, who, job_id)
    with service.store.read() as connection:
        record = visible_job(connection, who, job_id)
        cluster = clusters.get(connection, record.cluster_id)
    if cluster is None:
        return {**told, "verify": None}
    with mirrored(service, service.entry(cluster)) as mirror:
        frozen = freeze(service, mirror.entry, quiet=True)
        if frozen is None or not any(job.id == job_id and job.gangs for job in frozen.view.jobs):
            return {**told, "verify": None}
        policy, view = policies.get(frozen.record.policy), frozen.view
        answers = {"ever": can_ever(policy, view, job_id), "now": can_now(policy, view, job_id)}
    return {**told, "verify": {question: _told(answer) for question, answer in answers.items()}}


def _told(answer: Answer) -> dict[str, Any]:
    return {"can": answer.can, "text": answer.text, "facts": dict(answer.facts)}
