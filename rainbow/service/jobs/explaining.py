"""Why a job is where it is and waits, as things stand when somebody asks.

What is stored of a wait is its reason and since when; the numbers beside it are those of the moment it began. So they
are asked for anew, of policies that tell them at no cost (`by_census`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.scheduling import policies
from rainbow.service.jobs.showing import visible_job, why
from rainbow.service.steps.stepping import wait_now
from rainbow.store import clusters

if TYPE_CHECKING:
    from rainbow.service.access import Caller
    from rainbow.service.service import Service


def why_now(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Show the whole decision, and why the job waits by the numbers of now."""
    told = why(service, who, job_id)
    if told["wait"] is None:
        return told
    with service.store.read() as connection:
        record = clusters.get(connection, visible_job(connection, who, job_id).cluster_id)
    if record and (fault := service.faults.get(record.id)):
        text = f"the scheduler's last step of {record.name} failed, its owner must act: {fault}"
        return {**told, "wait": {**told["wait"], "reason": "step-failed", "text": text, "facts": {"fault": fault}}}
    if record is None or not getattr(policies.get(record.policy), "by_census", False):
        return told
    wait = wait_now(service, record, job_id)
    if wait is None:
        return told  # it is about to start: the next step says it
    now = {"reason": wait.reason, "text": wait.text, "facts": dict(wait.facts)}
    return {**told, "wait": {**told["wait"], **now}}
