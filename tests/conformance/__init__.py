"""Recorded answers of the real systems, compared with ours: `python -m tests.conformance SYSTEM FOLDER`.

One module a system, named like it, with `compare(folder)` yielding a Comparison for every case; a file that a
folder lacks is left out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """One recorded answer and whether ours is the same."""

    label: str
    agrees: bool
    detail: str = ""


def rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a .jsonl file, or of its .gz; none if there is neither."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        yield from map(json.loads, plain.read_text().splitlines())
    elif packed.exists():
        yield from map(json.loads, gzip.decompress(packed.read_bytes()).decode().splitlines())
