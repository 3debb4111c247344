"""What a submit brings, and the job that was submitted before under the same Idempotency-Key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound
from rainbow.service.core.access import Caller
from rainbow.service.jobs.lifecycle import sees
from rainbow.service.placement import ledger, refusal
from rainbow.store import jobs

if TYPE_CHECKING:
    import sqlalchemy as sa


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a submit brings: the jobspec, and what may be beside it in an envelope."""

    jobspec: str | bytes | Mapping[str, Any]
    selector: str | None = None
    options: Mapping[str, Any] | None = None
    clusters: Sequence[str] | None = None  # only these; None: all the caller may use
    name: str | None = None
    requestor: str | None = None
    basis: str | None = None  # what the job is a version of: see named_dependencies.py
    tag: str | None = None  # which version
    key: str | None = None  # Idempotency-Key
    credentials: Sequence[str] = field(default_factory=tuple)  # digest of who asks, part of the key
    explain: bool = False  # of match: say what was looked for and found, and what would do
    place: str | None = None  # only this one of them, by the plan of a batch; no part of what was asked
    backend: str | None = None  # how it is matched; None: as the server is set
    login: str | None = None  # of who submits: the requestor where none is named; no part of what was asked
    account: str | None = None  # who pays; None: as the jobspec says, else the requestor's default
    queue: bool | None = None  # wait where clusters match and none takes it now; None: as the server is set

    def digest(self) -> str:
        """Return what tells two requests apart."""
        parts: list[Any] = [self.jobspec, self.selector, self.options, self.clusters, self.name, self.requestor]
        parts += [self.basis, self.tag] if self.basis or self.tag else []
        parts += [value for value in (self.queue, self.backend) if value is not None]
        parts += [{"account": self.account}] if self.account is not None else []
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(asked: Submission) -> str:
    """Return what is stored of an Idempotency-Key: it is one caller's."""
    return hashlib.sha256(json.dumps([asked.key, sorted(asked.credentials)]).encode()).hexdigest()


def earlier_job(connection: sa.Connection, who: Caller, asked: Submission) -> dict[str, Any] | None:
    """Return the job that was submitted under the same key; Conflict if that was another request."""
    found = jobs.by_idempotency(connection, key_of(asked)) if asked.key else None
    if found is None:
        return None
    job_id, digest = found
    if digest != asked.digest():
        raise Conflict("this Idempotency-Key was already used for a different request")
    record = jobs.get(connection, job_id)
    if record is None or not sees(connection, who, record):  # of what was brought then something may have ended
        raise NotFound(f"job {job_id} not found")
    decision = ledger.shown(jobs.decision(connection, job_id))
    return refusal.told(record, decision)
