"""`--strict`: a jobspec with a key that is not read is refused here, before a server sees it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rainbow.cli.reading import text_of
from rainbow.errors import JobspecError, RainbowError
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.meant import NOT_READ

TOLD = 5  # keys


def check(jobspec: str | dict[str, Any], of: str = "") -> None:
    """Refuse a jobspec with keys that are not read."""
    check_read(parse_jobspec(jobspec), of)


def check_read(request: Request, of: str = "") -> None:
    """Refuse a jobspec, read already, with keys that are not."""
    unread = [warning for warning in request.warnings if NOT_READ in warning]
    if unread:
        more = [f"and {len(unread) - TOLD} more"] if len(unread) > TOLD else []
        pointer = unread[0].partition(NOT_READ)[0]
        raise JobspecError(f"{of and f'{of}: '}{', '.join([*unread[:TOLD], *more])}", pointer=pointer)


def check_files(paths: Iterable[Path]) -> None:
    """Refuse the first of these jobspecs with such keys; what cannot be read at all has an answer of its own."""
    for path in paths:
        try:
            request = parse_jobspec(text_of(path))
        except RainbowError:
            continue
        check_read(request, str(path))
