"""One call of a command of Slurm's: its words, and who called it where; and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as the user's side sends it. `offset`: seconds east of Greenwich there; `script`: the text it read."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    user: str = ""
    uid: int = 0
    gid: int = 0
    umask: int | None = None
    host: str = ""
    at: float = 0.0
    offset: int = 0
    script: str | None = None
    key: str | None = None
    waits_for: str = ""
    credentials: Sequence[str] = ()

    @property
    def now(self) -> datetime:
        """The time there, with its zone."""
        return datetime.fromtimestamp(self.at, UTC).astimezone(timezone(timedelta(seconds=self.offset)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command prints, and its exit code; or what the user's side is to do and ask again.

    `read`: a file to send as the script; `again`: seconds to wait for `waits_for`.
    """

    out: str = ""
    err: str = ""
    exit: int = 0
    read: str | None = None
    again: float | None = None
    waits_for: str = ""
