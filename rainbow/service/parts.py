"""Parts of a decision as the ledger keeps them: JSON text, known by its SHA-256."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A text and its digest, both worked out once."""

    text: str
    digest: str

    @classmethod
    def of(cls, value: Any) -> Part:
        """Write a value."""
        text = json.dumps(value, default=str)
        return cls(text, sha256(text.encode()).hexdigest())
