"""A job by the names people type: its number, NUMBER_INDEX of an element, its id or a beginning of that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.errors import NotFound, RequestError
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.lifecycle import sees
from rainbow.store import jobs
from rainbow.store.names.numbers import element_place

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service

WHOLE_ID = 24  # hexadecimal digits
NEAR = 100  # jobs looked at for a short id
_NUMBER = re.compile(r"([0-9]{1,10})(?:_([0-9]{1,9}))?", re.ASCII)
_DIGITS, _FEW_DIGITS = re.compile("[0-9a-f]{4,}"), re.compile("[0-9a-f]{1,3}")


@dataclass(frozen=True, slots=True)
class Named:
    """What a name means: a job, or of an array the element whose task has this place."""

    job: str
    element: int | None = None


def find(service: Service, who: Caller, text: str) -> Named:
    """Return what a name means for this caller; NotFound if several jobs begin so.

    A text that names nothing is returned as the job: the lookup of the job says what is wrong.
    """
    if number := _NUMBER.fullmatch(text):
        with service.store.read() as connection:
            found = by_number(connection, who, number)
        if found is not None:
            return found
    if len(text) >= WHOLE_ID or not _DIGITS.fullmatch(text):
        if _FEW_DIGITS.fullmatch(text) and not text.isdecimal():
            raise NotFound(f"job {text} not found; give at least 4 digits of an id")
        return Named(text)
    with service.store.read() as connection:
        near = jobs.beginning_with(connection, text, NEAR)
        ids = [record.id for record in near if sees(connection, who, record)]
    if len(ids) > 1 or len(near) == NEAR:
        named = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
        raise NotFound(f"several jobs begin with {text}: {named}; give more digits of the id")
    return Named(ids[0] if ids else text)


def by_number(connection: sa.Connection, who: Caller, number: re.Match[str]) -> Named | None:
    """Return what a number means, with or without the index of an element."""
    wanted = int(number[1])
    record = jobs.by_number(connection, wanted)
    if record is None or not sees(connection, who, record):
        return None
    if number[2] is None:
        return Named(record.id, element_place(record.number, record.elements, wanted))
    array = reading(connection, record.id).request.array if record.number == wanted and record.elements else None
    place = None if array is None else array.ids.place(int(number[2]))
    return None if place is None else Named(record.id, place)


def whole_id(service: Service, who: Caller, text: str) -> str:
    """Return the id of the job that a name means, or the array whose element it means."""
    return find(service, who, text).job


def whole_job(service: Service, who: Caller, text: str) -> str:
    """Return the id of the job that a name means; RequestError if it means a part of one."""
    named = find(service, who, text)
    if named.element is not None:
        raise RequestError(f"{text} is an element of an array; this changes whole jobs only", pointer="/job_id")
    return named.job
