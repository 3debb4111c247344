"""Starts that were not made because their certificate was refused, as files for an operator: unverified-JOB.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

MOST_FILES = 100
NAMED = "unverified-*.json"
log = structlog.get_logger("rainbow")


def write(folder: Path | None, job: str, report: Mapping[str, Any]) -> None:
    """Write what was refused of a job, readable by the server's user alone; of very many nothing more is written."""
    if folder is None:
        return
    path = folder / f"unverified-{job}.json"
    try:
        if not path.exists() and len(reports(folder)) >= MOST_FILES:
            return
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"job": job, **report}, file)
    except OSError as fault:  # the start is refused all the same
        log.error("unverified-not-written", file=str(path), reason=str(fault))


def reports(folder: Path) -> list[Path]:
    """Return the files there are."""
    return sorted(folder.glob(NAMED))
