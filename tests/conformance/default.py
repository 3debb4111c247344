"""The default rule of matching, decided by brute force: `matched` for every case and every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import rainbow
from rainbow.matching import match  # counts steps, not time: answers alike on a busy machine
from tests.conformance import Comparison, rows
from tests.support.oracle_cases import OWN_BACKENDS


def compare(folder: Path) -> Iterator[Comparison]:
    """Yield one comparison a case: every backend must give the recorded verdict."""
    for row in rows(folder, "cases.jsonl"):
        cluster = rainbow.read_cluster(row["graph"], name="case")
        job = rainbow.parse_jobspec(row["jobspec"])
        verdicts = {name: match(job, [cluster], backend=name)[0] for name in OWN_BACKENDS}
        wrong = [
            f"{name} says {v.matched} ({v.reason.text if v.reason else 'matched'}), recorded {row['matched']}"
            for name, v in verdicts.items()
            if v.matched != row["matched"]
        ]
        yield Comparison(f"case {row['id']}", not wrong, "; ".join(wrong))
