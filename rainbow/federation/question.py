"""A submit, a match or a question for times: as it came, and as each shard is asked it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.api.wire import check, jobspec_in
from rainbow.cache import LruCache
from rainbow.errors import InputError
from rainbow.federation.shards import Shard
from rainbow.federation.upstream import Pairs
from rainbow.jobspec import Request, parse_jobspec
from rainbow.service.placement.candidates import NAMED

MOST_READ, LONGEST = 2_000, 20_000  # jobspecs whose reading is remembered, characters of each
_read: LruCache[str, Request] = LruCache(MOST_READ)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `places` are the shards that may answer, and what replaces the envelope's own for each."""

    body: bytes
    kind: str  # media type
    jobspec: Any
    envelope: Mapping[str, Any]
    request: Request | None  # None: it cannot be read, and a shard says why
    key: str = ""  # Idempotency-Key
    places: Mapping[Shard, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, body: bytes, kind: str, key: str = "") -> Question:
        """Read a body; RequestError for an envelope that is none."""
        jobspec, envelope = jobspec_in(body, kind)
        if envelope:
            check(envelope, "Question")
        try:
            return cls(body, kind, jobspec, envelope, _parsed(jobspec), key)
        except InputError:
            return cls(body, kind, jobspec, envelope, None, key)

    def to(self, shard: Shard, **more: Any) -> tuple[Pairs, bytes]:
        """Return headers and body for one of the places."""
        others = {**self.places.get(shard, {}), **more}
        plain = self.envelope or {"jobspec": self.jobspec}
        body = json.dumps({**plain, **others}).encode() if others else self.body
        headers = [(b"Content-Type", b"application/json" if others else self.kind.encode("latin-1"))]
        return headers + ([(b"Idempotency-Key", self.key.encode("latin-1"))] if self.key else []), body

    @property
    def shape(self) -> object:
        """What is equal for jobs that match the same clusters and are placed by the same rules."""
        if self.request is None:
            return self.body
        system = self.request.attributes.get("system") or {}
        others = {name: self.envelope.get(name) for name in ("selector", "clusters", "backend", "stated")}
        named = {name: system[name] for name in sorted(NAMED) if name in system}
        answer = json.dumps([others, named], sort_keys=True, default=repr)
        return self.request.key, answer, frozenset(self.places)


def _parsed(jobspec: Any) -> Request:
    text = json.dumps(jobspec, default=repr)
    known = _read.get(text) or parse_jobspec(jobspec)
    return _read.put(text, known) if len(text) <= LONGEST else known
