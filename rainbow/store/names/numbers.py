"""The numbers of jobs: short, decimal, never given twice.

An array of n elements has n numbers in a row. The first is the array's, and its last element's; the others have
those after it, in order, as Slurm numbers arrays. Processes reserve blocks of numbers: what a block has left when its
process ends is never given.
"""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.store.schema import NAME, clusters, metadata, tasks

AUTO = 0  # begin at 1, and after the first site that numbers jobs by itself at OF_SITES
OF_SITES = 100_000_001  # above what an unfederated Slurm gives, 67,108,863
MOST = 9_999_999_999  # ten digits
RESTORED = 100_000  # left out by a restore: how many were given after the backup is not known
_SERIES = "jobs"

numbers = sa.Table(
    "numbers",
    metadata,
    sa.Column("series", NAME, primary_key=True),
    sa.Column("next", sa.BigInteger, nullable=False),
)

_NEXT = sa.select(numbers.c.next).where(numbers.c.series == _SERIES)
_SITES = sa.select(sa.exists().where(clusters.c.policy == "delegate"))


def element_number(number: int, elements: int, place: int) -> int:
    """Return the number of the element at a place of an array; of a job that is none, its own.

    >>> [element_number(5, 4, place) for place in range(4)], element_number(7, 0, 0)
    ([6, 7, 8, 5], 7)
    """
    return number if place >= elements - 1 else number + 1 + place


def element_place(number: int, elements: int, demand: int) -> int | None:
    """Return the place of the element that has a number; None where it names the whole.

    >>> [element_place(5, 4, wanted) for wanted in (5, 6, 8)]
    [None, 0, 2]
    """
    return None if demand == number or not elements else demand - number - 1


def first_number(connection: sa.Connection, first: int) -> int:
    """Return where numbers continue, as far as is known now; `first`: where they begin, or AUTO."""
    options = connection.execute(_NEXT).scalar()
    sites = first == AUTO and connection.execute(_SITES).scalar_one()
    return max(options or 1, OF_SITES if sites else first)


def reserve(connection: sa.Connection, many: int, first: int) -> int:
    """Reserve consecutive numbers, as the only writer; return the first of them."""
    begin = first_number(connection, first)
    _go_on(connection, begin + many)
    return begin


def leave_to_sites(connection: sa.Connection) -> None:
    """Continue above the numbers of sites: one has numbered a job."""
    _go_on(connection, first_number(connection, OF_SITES))


def after_restore(connection: sa.Connection) -> None:
    """Leave out what was given after the backup was made."""
    if connection.execute(_NEXT).scalar() is not None:
        connection.execute(numbers.update().values(next=numbers.c.next + RESTORED))


def _go_on(connection: sa.Connection, at: int) -> None:
    changed = connection.execute(numbers.update().where(numbers.c.series == _SERIES).values(next=at))
    if not changed.rowcount:
        connection.execute(numbers.insert().values(series=_SERIES, next=at))


def at_site(connection: sa.Connection, cluster: str, number: str) -> list[str]:
    """Return the jobs that the site of a cluster of this name calls by a number, the newest first."""
    at = sa.select(clusters.c.id).where(clusters.c.name == cluster).scalar_subquery()
    query = sa.select(tasks.c.job).where(tasks.c.cluster_id == at, tasks.c.site.is_not(None)).distinct()
    query = query.where(tasks.c.site["number"].as_string() == number).order_by(tasks.c.job.desc())
    return list(connection.execute(query).scalars())
