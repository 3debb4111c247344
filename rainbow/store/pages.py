"""Pages of jobs, and the first rows of several ranges of an index in one order."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, prod, sqrt
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from rainbow.state_machine import JobState
from rainbow.store.accounts.tables import former_clusters
from rainbow.store.jobs import PENDING, SEEN, JobRecord, record_of
from rainbow.store.schema import TEXT, clusters, jobs, reaches, unplaced

COUNTED = ("state", "cluster", "requestor", "reason")
MOST_RANGES = 2_000  # read for one page; of more the clusters are read past instead: so many have jobs everywhere


_ANY_UNPLACED = sa.select(unplaced.c.job).limit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs to list; all conditions hold together, and None is none.

    `clusters`: ids of those that are visible; `places`: names of clusters; `names`: of jobs, with * and ?; `before`:
    those that come after this job id; `since`: not ended before; `until`: submitted before.
    """

    clusters: Collection[str] | None = None
    states: Collection[str] = ()
    places: Collection[str] | None = None
    before: str | None = None
    limit: int = 100
    requestors: Collection[str] | None = None
    own: Mapping[str, Collection[str]] = field(default_factory=dict)  # cluster → whose jobs there, if not everybody's
    reasons: Collection[str] = ()  # why they wait
    ids: Collection[str] | None = None
    names: Collection[str] | None = None
    exactly: Collection[str] | None = None  # names in which * and ? mean themselves
    accounts: Collection[str] = ()
    since: float | None = None
    until: float | None = None
    oldest: bool = False  # the oldest first


def listing(connection: sa.Connection, chosen: Filter) -> list[JobRecord]:
    """Return the chosen jobs, the newest first unless the oldest are asked for."""
    waiting = connection.execute(_ANY_UNPLACED).first() is not None
    ranges, elements = _ranges(connection, chosen, waiting), _wanted(connection, chosen, waiting)
    narrow = _narrow(connection, chosen)
    if narrow is not None:
        elements += [column.in_(values) for column, values in ranges]
        ranges = [narrow]
    while prod(len(values) for _, values in ranges) > MOST_RANGES and ranges[0][0] is not jobs.c.state:
        column, values = ranges.pop(0)
        elements.append(column.in_(values))
        ranges = ranges or [(jobs.c.state, [*JobState])]
    columns, parts = [column for column, _ in ranges], list(product(*(values for _, values in ranges)))
    if columns[:2] == [jobs.c.cluster_id, jobs.c.requestor]:
        own = {one: set(map(_clean, whose)) for one, whose in chosen.own.items()}
        parts = [part for part in parts if part[0] not in own or part[1] in own[part[0]]]
    results = first_of(connection, jobs.c.id, columns, parts, chosen.limit, elements, newest=not chosen.oldest)
    order = jobs.c.id if chosen.oldest else jobs.c.id.desc()
    return [record_of(row) for row in connection.execute(SEEN.where(jobs.c.id.in_(results)).order_by(order))]


def _narrow(connection: sa.Connection, chosen: Filter) -> tuple[sa.Column[Any], list[str]] | None:
    """Return the ids or the names that are chosen, where they are few: their index is read, and no other."""
    if chosen.ids is not None:
        return jobs.c.id, sorted(set(chosen.ids))
    if chosen.exactly is not None:
        return jobs.c.name, sorted(set(map(_clean, chosen.exactly)))
    if chosen.names is None:
        return None
    results = {_clean(name) for name in chosen.names if not _GLOB.search(name)}
    for pattern in (name for name in chosen.names if _GLOB.search(name)):
        found_at = _GLOB.search(pattern)
        begin = _clean(pattern[: found_at.start()] if found_at else pattern).rstrip(
            "\ud7ff\U0010ffff"
        )  # without a next
        if not begin:
            return None
        name: Any = jobs.c.name  # SQLite compares bytes; PostgreSQL does so in the collation C alone
        name = name if connection.dialect.name == "sqlite" else sa.collate(name, "C")
        query = sa.select(jobs.c.name).where(name >= begin, name < begin[:-1] + chr(ord(begin[-1]) + 1))
        within = connection.execute(query.distinct().limit(MOST_RANGES + 1)).scalars().all()
        results |= {name for name in within if _matches(pattern).fullmatch(name)}
        if len(within) > MOST_RANGES or len(results) > MOST_RANGES:
            return None
    return jobs.c.name, sorted(results)


_GLOB = re.compile(r"[*?]")


def _matches(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a name with * and ?; everything else means itself."""
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(char) or re.escape(char) for char in pattern), re.DOTALL)


def _like(connection: sa.Connection, pattern: str) -> sa.ColumnElement[bool]:
    """Return the condition that a name matches, with upper and lower case apart."""
    if connection.dialect.name == "sqlite":
        return jobs.c.name.op("GLOB", is_comparison=True)(_clean(pattern).replace("[", "[[]"))
    escaped = re.sub(r"([%_\\])", r"\\\1", _clean(pattern))
    return jobs.c.name.like(escaped.replace("*", "%").replace("?", "_"), escape="\\")


def _wanted(connection: sa.Connection, chosen: Filter, waiting: bool) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that no index answers."""
    result: list[sa.ColumnElement[bool]] = []
    if chosen.clusters is not None and (waiting or chosen.own):
        result.append(_shown(chosen.clusters, chosen.own))
    if chosen.reasons:
        result.append(jobs.c.wait["reason"].as_string().in_(chosen.reasons))
    if chosen.names is not None:
        result.append(sa.or_(sa.false(), *(_like(connection, name) for name in chosen.names)))
    if chosen.exactly is not None:
        result.append(jobs.c.name.in_(map(_clean, chosen.exactly)))
    if chosen.ids is not None:
        result.append(jobs.c.id.in_(chosen.ids))
    if chosen.accounts:
        result.append(jobs.c.account.in_(chosen.accounts))
    if chosen.since is not None:
        result.append(sa.or_(jobs.c.ended_at.is_(None), jobs.c.ended_at >= chosen.since))
    if chosen.until is not None:
        result.append(jobs.c.submitted_at <= chosen.until)
    if chosen.before is not None:
        result.append(jobs.c.id > chosen.before if chosen.oldest else jobs.c.id < chosen.before)
    return result


def _ranges(connection: sa.Connection, chosen: Filter, waiting: bool) -> list[tuple[sa.Column[Any], list[str]]]:
    """Return the first columns of an index that ends with the id, and which values of each can be wanted."""
    at = None if chosen.clusters is None else {*chosen.clusters, *([""] if waiting else ())}
    if chosen.places is not None:
        named = [
            sa.select(table.c.id).where(table.c.name.in_(chosen.places)) for table in (clusters, former_clusters)
        ]
        ids = set(connection.execute(sa.union(*named)).scalars())
        at = ids if at is None else ids & at
    whose = None if chosen.requestors is None else set(chosen.requestors)
    if whose is None and at and chosen.own.keys() >= at - {""}:
        whose = {one for cluster_id in at & chosen.own.keys() for one in chosen.own[cluster_id]}
    states = set(map(str, chosen.states or (PENDING if chosen.reasons else ())))
    if not states and (chosen.ids, chosen.names, chosen.exactly) == (None,) * 3 and (at is None or whose is not None):
        states = set(map(str, JobState))
    keys = [(jobs.c.cluster_id, at), (jobs.c.requestor, whose), (jobs.c.state, states or None)]
    return [(column, sorted(set(map(_clean, values)))) for column, values in keys if values is not None]


def _clean(value: str) -> str:
    return TEXT.process_bind_param(value, None) or ""


def first_of(
    connection: sa.Connection,
    ordered: sa.Column[Any],
    columns: Sequence[sa.Column[Any]],
    ranges: Sequence[Sequence[str]],
    most: int,
    elements: Sequence[sa.ColumnElement[bool]] = (),
    *,
    newest: bool = False,
) -> list[Any]:
    """Return the first values of a column, of rows that are wanted and in whose columns one of the ranges is.

    An index of these columns and the ordered one answers, however many rows there are. The first row of each range
    says which ranges can have a part. If n ranges have m rows each up to a value, and n * m rows are wanted, none
    after this value is: so few ranges are read as far as `most` rows.
    """
    each, same = _each(connection, columns)
    order = ordered.desc().nulls_last() if newest else ordered.asc().nulls_first()  # not that of the primary key
    of_one = sa.select(ordered).where(*same, *elements).order_by(order).correlate(each)
    inside = parts = list(ranges)
    for rank in (1, ceil(sqrt(most))):
        ranked = of_one.limit(1).offset(rank - 1).scalar_subquery()
        results = [(last, part) for part, last in _read(connection, each, ranked, inside) if last is not None]
        results.sort(key=itemgetter(0), reverse=newest)
        count = ceil(most / rank)
        inside = [part if isinstance(part, list) else json.loads(part) for _, part in results[:count]]
        parts = inside if rank == 1 else parts
        if len(results) >= count:
            bound = results[count - 1][0]
            of_one = of_one.where(ordered >= bound if newest else ordered <= bound)
    some = of_one.limit(most).subquery()
    together = sa.select(sa.func.aggregate_strings(sa.cast(some.c[0], sa.String), ",")).scalar_subquery()
    read = [text for _, text in _read(connection, each, together, parts) if text]
    kind = int if isinstance(ordered.type, sa.Integer) else str
    return sorted((kind(one) for text in read for one in text.split(",")), reverse=newest)[:most]


def _each(connection: sa.Connection, columns: Sequence[sa.Column[Any]]) -> tuple[Any, list[sa.ColumnElement[bool]]]:
    """Return a table of the ranges that a statement is given as JSON, and the conditions to be in one of them."""
    options = sa.bindparam("ranges", type_=sa.String)
    if connection.dialect.name == "sqlite":
        each = sa.func.json_each(options).table_valued("value", name="each")
        return each, [one == sa.func.json_extract(each.c.value, f"$[{k}]") for k, one in enumerate(columns)]
    each = sa.func.jsonb_array_elements(sa.cast(options, JSONB)).table_valued("value", name="each")
    return each, [one == each.c.value.op("->>")(k) for k, one in enumerate(columns)]


def _read(connection: sa.Connection, each: Any, value: Any, ranges: Sequence[Sequence[str]]) -> list[Any]:
    """Return each range with a value of it."""
    query = sa.select(each.c.value, value).select_from(each)
    return list(connection.execute(query, {"ranges": json.dumps(ranges)})) if ranges else []


def count_live_by(
    connection: sa.Connection, visible: Collection[str] | None, own: Mapping[str, Collection[str]], by: str
) -> dict[str, int]:
    """Return {value: how many jobs that have not ended} of one of COUNTED, the largest first."""
    # an expression, so that the index of states is taken, which is best
    column = jobs.c.wait["reason"].as_string() if by == "reason" else jobs.c[by].concat("")
    query = sa.select(column, sa.func.count()).where(jobs.c.state.in_(PENDING)).group_by(column)
    if visible is not None:
        query = query.where(_shown(visible, own))
    results = {str(value or ""): many for value, many in connection.execute(query)}
    return dict(sorted(results.items(), key=lambda one: (-one[1], one[0])))


def _shown(cluster_ids: Collection[str], own: Mapping[str, Collection[str]]) -> sa.ColumnElement[bool]:
    """Return the condition that a job is at one of these, or may go there, and that its requestor's are shown."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for cluster_id, requestors in own.items():
        groups.setdefault(tuple(sorted(requestors)), []).append(cluster_id)
    parts = [_there([one for one in cluster_ids if one not in own])]
    parts += [sa.and_(_there(listed), jobs.c.requestor.in_(whose)) for whose, listed in groups.items()]
    return sa.or_(*parts)


def _there(cluster_ids: Collection[str]) -> sa.ColumnElement[bool]:
    return sa.or_(jobs.c.cluster_id.concat("").in_(cluster_ids), _in_reach(cluster_ids))


def _in_reach(cluster_ids: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a job has no cluster and may go to one of these."""
    query = sa.select(unplaced.c.job).join(reaches, unplaced.c.reach == reaches.c.reach)
    return jobs.c.id.in_(query.where(reaches.c.cluster_id.in_(cluster_ids)))
