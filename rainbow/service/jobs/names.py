"""The names of a job, read in one place for the command line, HTTP, dependencies, the page and completion.

    1042                   the number; of an array's element, its own
    1042_3                 an element of an array, by the array and the element's index
    18ebc41f... , 18ebc    the id, or a beginning of it that no other job has
    train                  the name, if one active job has it
    last                   the newest job of the person who asks
    oak:530                a site's own number

A text that names several jobs is an error that lists them: no verb ever acts on one of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.errors import RequestError
from rainbow.job_names import LAST, MOST_NAMED, not_one
from rainbow.service.core.access import ANONYMOUS, Caller, requestor_of
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.lifecycle import WHOLE_ID, sees
from rainbow.store import jobs, pages
from rainbow.store.jobs import PENDING, JobRecord
from rainbow.store.names import numbers
from rainbow.store.names.numbers import element_place
from rainbow.store.pages import Filter

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


NUMBERS = 9  # digits: what is shorter and decimal is a number, and never the beginning of an id
_NUMBER = re.compile(r"([0-9]{1,10})(?:_([0-9]{1,9}))?", re.ASCII)
NAMING = ("number", "id", "site")  # filters that name jobs
_ID = re.compile(r"[0-9a-f]{4,}")
_ELEMENT = re.compile(r"(.+)_(\d{1,9})", re.DOTALL)
_AT_SITE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99}):(\d{1,19})")


@dataclass(frozen=True, slots=True)
class Named:
    """What a name means: a job, or of an array the element whose task has this place."""

    record: JobRecord
    element: int | None = None

    @property
    def job(self) -> str:
        """The job's id."""
        return self.record.id


def find(service: Service, who: Caller, text: str, login: str | None = None) -> Named:
    """Return what a name means for this caller; NotFound if it names no job, or several."""
    with service.store.read() as connection:
        return one_of(connection, who, text, login)


def one_of(connection: sa.Connection, who: Caller, text: str, login: str | None = None) -> Named:
    """Return what a name means, as `find` does."""
    rows = matches(connection, who, text, login)
    if len(rows) != 1:
        raise not_one(
            text, [{"id": one.job, "number": one.record.number, "name": one.record.name} for one in rows], login
        )
    return rows[0]


def whole_id(service: Service, who: Caller, text: str, login: str | None = None) -> str:
    """Return the id of the job that a name means, or the array whose element it means."""
    return find(service, who, text, login).job


def whole_job(service: Service, who: Caller, text: str, login: str | None = None) -> str:
    """Return the id of the job that a name means; RequestError if it means a part of one."""
    one = find(service, who, text, login)
    if one.element is not None:
        raise RequestError(f"{text} is an element of an array; this changes whole jobs only", pointer="/job_id")
    return one.job


def ids_of(service: Service, who: Caller, texts: Iterable[str], login: str | None = None) -> list[str]:
    """Return the ids of all jobs that some texts name; what names none adds none: it is a filter."""
    with service.store.read() as connection:
        return [one.job for text in texts for one in matches(connection, who, text, login)]


def matches(connection: sa.Connection, who: Caller, text: str, login: str | None = None) -> list[Named]:
    """Return the jobs that a text names, the newest first; at most MOST_NAMED of them.

    What is exact comes first: `last` is never a job's name, and an id is never the name of another job.
    """
    if not text:
        return []
    if text == LAST:
        newest = newest_of(connection, who, login)
        return [Named(newest)] if newest else []
    if len(text) >= WHOLE_ID and _ID.fullmatch(text):
        record = jobs.get(connection, text)
        return [Named(record)] if record is not None and sees(connection, who, record) else []
    if (number := _NUMBER.fullmatch(text)) and (one := _by_number(connection, who, number)) is not None:
        return [one]
    if at_site := _AT_SITE.fullmatch(text):
        return _at_site(connection, who, at_site[1], at_site[2])
    chosen = Filter(clusters=who.visible, own=who.own, exactly=[text], states=sorted(PENDING), limit=MOST_NAMED)
    near = {record.id: Named(record) for record in pages.listing(connection, chosen)}
    near |= {one.job: one for one in [*_beginning(connection, who, text), *_element(connection, who, text)]}
    return [near[job] for job in sorted(near, reverse=True)]


def _by_number(connection: sa.Connection, who: Caller, number: re.Match[str]) -> Named | None:
    """Return what a number means, with or without the index of an element."""
    demand = int(number[1])
    record = jobs.by_number(connection, demand)
    if record is None or not sees(connection, who, record):
        return None
    if number[2] is None:
        return Named(record, element_place(record.number, record.elements, demand))
    return _task_of(connection, record, int(number[2])) if record.number == demand else None


def _beginning(connection: sa.Connection, who: Caller, text: str) -> list[Named]:
    """Return the jobs whose ids begin so; a few decimal digits are a number, and that job may have been forgotten."""
    is_number = text.isdecimal() and len(text) < NUMBERS
    near = jobs.beginning_with(connection, text, MOST_NAMED) if _ID.fullmatch(text) and not is_number else []
    return [Named(record) for record in near if sees(connection, who, record)]


def _element(connection: sa.Connection, who: Caller, text: str) -> list[Named]:
    """Return the elements that an id, or a beginning of one, and an index name."""
    parts = _ELEMENT.fullmatch(text)
    if parts is None:
        return []
    near = _beginning(connection, who, parts[1])
    return [one for job in near if (one := _task_of(connection, job.record, int(parts[2]))) is not None]


def _task_of(connection: sa.Connection, record: JobRecord, index: int) -> Named | None:
    """Return the element of an array that has this index, or the task of another job at this place."""
    read = reading(connection, record.id)
    place = index if read.request.array is None else read.request.array.ids.place(index)
    return Named(record, place) if place in read.tasks else None


def _at_site(connection: sa.Connection, who: Caller, cluster: str, number: str) -> list[Named]:
    """Return the job that a site calls so; sites give their numbers again, so the newest."""
    for job_id in numbers.at_site(connection, cluster, number):
        record = jobs.get(connection, job_id)
        if record is not None and sees(connection, who, record):
            return [Named(record)]
    return []


def newest_of(connection: sa.Connection, who: Caller, login: str | None) -> JobRecord | None:
    """Return the newest job of the person who asks, as a submit of theirs would name them.

    A token that names requestors says who that is; any other is shared, and the login tells its users apart. So
    `last` is never another user's job, whatever else the credentials show.
    """
    newest = [
        record
        for person, at in persons_of(who, login).items()
        for record in pages.listing(connection, Filter(clusters=at, requestors=[person], limit=1))
    ]
    return max(newest, key=lambda record: record.id, default=None)


def persons_of(who: Caller, login: str | None) -> Mapping[str, set[str] | None]:
    """Return {requestor: the clusters where the caller is that one}; None: all clusters."""
    if who.visible is None:
        return {login or ANONYMOUS: None}
    persons: dict[str, set[str] | None] = {}
    for cluster in who.visible:
        allowed = who.submits.get(cluster)
        if allowed == []:
            continue  # a token that acts for nobody
        person = requestor_of(None, allowed, login)
        at = persons.setdefault(person, set())
        if at is not None:
            at.add(cluster)
    return persons
