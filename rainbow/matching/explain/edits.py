"""What may be changed of a refused request, each change alone, and the request with some of them made.

path     where a request stands: (variant, place among the roots, place among the children, ...)
kinds    in the order of how much they hurt
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rainbow.jobspec import Constraint, Count
from rainbow.jobspec.quantities import finer, quantity
from rainbow.jobspec.request import CONTAINMENT
from rainbow.matching.model.conditions import conjuncts, in_words
from rainbow.matching.model.layout import called

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Condition, Need, Request, Resource


Path = tuple[int, ...]


class Kind(IntEnum):
    """The ways to ask for less, the mildest first."""

    COUNT = 0  # fewer, or a smaller amount
    EXCLUSIVE = 1  # shared with other jobs
    NEED = 2  # without a need, or one condition of it that does not say what is needed
    CONSTRAINT = 3  # without the constraint, or one part of it
    SITE = 4  # another queue, fewer licenses, any cluster
    LEVEL = 5  # without one level: what is asked in it is asked where it stood
    REQUEST = 6  # without one request, and all below it
    SLOT = 7  # without a slot, and the tasks that run nowhere else


MILD = (Kind.COUNT, Kind.EXCLUSIVE, Kind.NEED, Kind.CONSTRAINT, Kind.SITE)  # they leave every request where it is


@dataclass(frozen=True)
class Edit:
    """One change of a request; `count` is what COUNT leaves of `asked`."""

    kind: Kind
    path: Path = ()
    of: str = ""  # what is changed, as people call it
    within: tuple[str, ...] = ()  # the requests above it
    unit: str = ""
    asked: int = 1
    count: int = 1
    unique: bool = True  # nothing else in the variant is called so
    need: Need | None = None
    conditions: tuple[Condition, ...] = ()  # what goes of the need
    constraint: Constraint | None = None
    word: str = ""  # of the site: queue, cluster, account, qos, reservation, or license NAME
    names: tuple[str, ...] = ()  # the queues that are asked instead
    likely: tuple[int, ...] = field(default=(), compare=False)  # counts that vertices have, ascending

    @property
    def lost(self) -> Fraction:
        """The share of what was asked for that is given up."""
        return Fraction(self.asked - self.count, self.asked) if self.kind is Kind.COUNT else Fraction(1)

    @property
    def text(self) -> str:
        """The change in words: "core ≤ 36", "without range on spack.version"."""
        place = "" if self.unique else f" in {' > '.join(self.within) or 'all'}"
        if self.kind is Kind.COUNT:
            return f"{self.of} ≤ {self.count} {self.unit}".strip() + place
        if self.kind is Kind.EXCLUSIVE:
            return f"{self.of} not exclusive{place}"
        if self.kind is Kind.LEVEL:
            return f"level {self.of} not asked{place}"
        if self.kind in (Kind.REQUEST, Kind.SLOT):
            return f"{self.of} not asked{place}"
        if self.kind is Kind.SITE:
            return self.of
        return f"without {self.of}"

    def document(self) -> dict[str, Any]:
        """Write the change as JSON."""
        written: dict[str, Any] = {"change": self.kind.name.lower(), "text": self.text}
        if self.path:
            written |= {"of": self.of, "within": list(self.within)}
        if self.kind is Kind.COUNT:
            written |= {"asked": self.asked, "count": self.count} | ({"unit": self.unit} if self.unit else {})
        if self.need:
            gone = [{"matcher": c.matcher, "options": dict(c.options)} for c in self.conditions]
            written |= {"subsystem": self.need.subsystem, "conditions": gone}
        if self.constraint:
            written |= {"constraint": written_constraint(self.constraint)}
        if self.word:
            written |= {"word": self.word, **({"queue": [*self.names]} if self.names else {})}
        return written


def written_constraint(constraint: Constraint) -> dict[str, Any]:
    """Write a constraint as RFC 31 does."""
    if constraint.operands:
        return {constraint.operator: [written_constraint(operand) for operand in constraint.operands]}
    return {constraint.operator: list(constraint.values)}


# ── what may be changed ──


def edits_of(request: Request, cluster: Cluster | None = None) -> Iterator[Edit]:
    """Yield every single change, each in its weakest form: counts at 1, of a unit that some vertex has one of."""
    for number, forest in enumerate(request.variants):
        names = Counter(called(part) for root in forest for part in root.walk())
        for place, root in enumerate(forest):
            for edit in _of_resource(root, (number, place), ()):
                finer_edit = _in_finer_unit(edit, cluster)
                if edit.kind is not Kind.COUNT or finer_edit.asked > 1:
                    yield replace(finer_edit, unique=names[edit.of] == 1)
    yield from _of_needs(request)
    yield from _of_constraint(request.constraint)
    yield from _of_site(request, cluster)


def _of_site(request: Request, cluster: Cluster | None) -> Iterator[Edit]:
    """Yield what a request may say otherwise of the site: another queue, fewer licenses, any cluster."""
    site = cluster.site if cluster else None
    queues = (site.queues if site else None) or {}
    query = request.queues or ((site.default,) if site and site.default else ())
    for name in [name for name in queues if name not in query][:MOST_QUEUES]:
        yield Edit(Kind.SITE, of=f"queue {name}", word="queue", names=(name,))
    if request.queues and not queues:
        yield Edit(Kind.SITE, of=f"without queue {', '.join(request.queues)}", word="queue")
    for name, count in request.licenses.items():
        there = ((site.licenses if site else None) or {}).get(name)
        if there is not None and 0 < there.count < count:
            remaining = there.count
            yield Edit(
                Kind.SITE, of=f"license {name} ≤ {remaining}", word=f"license {name}", asked=count, count=remaining
            )
        else:
            yield Edit(Kind.SITE, of=f"without license {name}", word=f"license {name}", asked=count, count=0)
    for word in ("account", "qos", "reservation"):
        if value := getattr(request, word):
            yield Edit(Kind.SITE, of=f"without {word} {value}", word=word)
    if request.clusters:
        yield Edit(Kind.SITE, of="any cluster", word="cluster")


MOST_QUEUES = 8  # that are tried instead of those asked for


def _in_finer_unit(edit: Edit, cluster: Cluster | None) -> Edit:
    if cluster is None or edit.kind is not Kind.COUNT:
        return edit
    sizes = {(one.size, one.unit) for one in cluster.outline.fields if one.type == edit.of}
    measures = [(size, *quantity(unit)) for size, unit in sizes]
    largest = max(
        (size * factor for size, measured, factor in measures if measured == quantity(edit.unit)[0]), default=0
    )
    unit, times = finer(edit.unit, largest) if largest else (edit.unit, 1)
    each = quantity(unit)[1]
    amounts = {size * factor // each for size, measured, factor in measures if measured == quantity(unit)[0]}
    return replace(edit, unit=unit, asked=edit.asked * times, likely=tuple(sorted(amounts)[-MOST_LIKELY:]))


def _of_resource(resource: Resource, path: Path, within: tuple[str, ...]) -> Iterator[Edit]:
    name = called(resource)
    if resource.count.min > 1 or resource.unit:
        yield Edit(Kind.COUNT, path, name, within, resource.unit, resource.count.min)
    if resource.exclusive:
        yield Edit(Kind.EXCLUSIVE, path, name, within)
    if resource.children and not (resource.is_slot or resource.needs):
        yield Edit(Kind.LEVEL, path, name, within)
    holds_slot = any(part.is_slot for part in resource.walk())
    yield Edit(Kind.SLOT if holds_slot else Kind.REQUEST, path, name, within)
    for place, child in enumerate(resource.children):
        yield from _of_resource(child, (*path, place), (*within, name))


def _of_needs(request: Request) -> Iterator[Edit]:
    """A need may have come to several requests from one line of the jobspec: it goes from all of them."""
    parts = (part for forest in request.variants for root in forest for part in root.walk())
    seen: set[str] = set()
    for need in (need for part in parts for need in part.needs):
        if (said := repr((need.subsystem, need.conditions))) not in seen:
            seen.add(said)
            yield from _of_need(need)


def _of_need(need: Need) -> Iterator[Edit]:
    """Beside others a match says what is needed (gcc): without it another thing's version would do."""
    if need.subsystem == CONTAINMENT:  # of the vertex itself; that it is of its type goes without saying
        fields = [condition for condition in need.conditions if condition.options.get("field") != "type"]
        shown = ", ".join(f"{one.options['field']} {one.options.get('value')}" for one in fields)
        yield Edit(Kind.NEED, of=shown, need=need, conditions=need.conditions)
        return
    loose = [c for c in need.conditions if c.matcher not in ("match", "flat")] if len(need.conditions) > 1 else []
    for conditions in [*((c,) for c in loose), need.conditions]:
        name = ", ".join(question(need, condition) for condition in conditions)
        yield Edit(Kind.NEED, of=name, need=need, conditions=conditions)


def question(need: Need, condition: Condition) -> str:
    """Name a condition by its matcher, its subsystem and its field: "range on spack.version"."""
    matcher = "match" if condition.matcher == "flat" else condition.matcher
    field = condition.options.get("field", "")
    text = field if f"{field}.".startswith(f"{need.subsystem}.") else f"{need.subsystem}.{field}"
    return f"{matcher} on {text.rstrip('.')}"


def _of_constraint(constraint: Constraint | None) -> Iterator[Edit]:
    if constraint is None:
        return
    parts = list(conjuncts(constraint))
    for part in parts if parts != [constraint] else []:
        yield Edit(Kind.CONSTRAINT, of=f"constraint {in_words(part)}", constraint=part)
    yield Edit(Kind.CONSTRAINT, of=f"constraint {in_words(constraint)}", constraint=constraint)


def names_of(request: Request, edit: Edit) -> frozenset[str]:
    """Return what a refusal may be about that an edit could mend: types, slots, subsystems, constraint, words."""
    if edit.word:
        of_queue = ("constraint", *(f"queue {name}" for name in request.queues)) if edit.word == "queue" else ()
        return frozenset({edit.word, edit.word.removeprefix("license "), *of_queue})
    if edit.need or edit.constraint:
        return frozenset({edit.need.subsystem if edit.need else "constraint"})
    at = request.variants[edit.path[0]][edit.path[1]]
    for place in edit.path[2:]:
        at = at.children[place]
    parts = list(at.walk())
    names = {called(part) for part in parts} | {need.subsystem for part in parts for need in part.needs}
    return frozenset(names | {"constraint"})


# ── the request as edited ──


class NothingLeftError(Exception):
    """The edits leave nothing where something must be."""


def edited(request: Request, edits: Sequence[Edit]) -> Request | None:
    """Return the request with all the edits made; None if they leave a slot, a vertex or the job empty."""
    by_path: dict[Path, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
        for end in range(1, len(edit.path)):
            by_path.setdefault(edit.path[:end], [])
    try:
        variants = tuple(_among(forest, (number,), by_path) for number, forest in enumerate(request.variants))
    except NothingLeftError:
        return None
    labels = {part.label for forest in variants for root in forest for part in root.walk() if part.is_slot}
    tasks = tuple(task for task in request.tasks if not (task.slots and labels.isdisjoint(task.slots)))
    if request.tasks and not tasks:
        return None
    removed = [edit.constraint for edit in edits if edit.constraint]
    changed = replace(request, variants=variants, tasks=tasks, constraint=_without(request.constraint, removed))
    for edit in edits:
        changed = _otherwise(changed, edit) if edit.word else changed
    return changed


def _otherwise(request: Request, edit: Edit) -> Request:
    """Return the request with a word of the site said otherwise."""
    if edit.word == "queue":
        return replace(request, queues=edit.names)
    if edit.word == "cluster":
        return replace(request, clusters=())
    if edit.word == "account":
        return replace(request, account="")
    if edit.word == "qos":
        return replace(request, qos="")
    if edit.word == "reservation":
        return replace(request, reservation="")
    name = edit.word.removeprefix("license ")
    stored = {one: count for one, count in request.licenses.items() if one != name}
    return replace(request, licenses={**stored, name: edit.count} if edit.count else stored)


def _among(siblings: tuple[Resource, ...], path: Path, edits: dict[Path, list[Edit]]) -> tuple[Resource, ...]:
    results = (_resource(resource, (*path, place), edits) for place, resource in enumerate(siblings))
    stored = tuple(resource for resources in results for resource in resources)
    if siblings and not stored:  # without children it would ask for the whole vertex: for more, not for less
        raise NothingLeftError
    return stored


def _resource(resource: Resource, path: Path, edits: dict[Path, list[Edit]]) -> tuple[Resource, ...]:
    if path not in edits and () not in edits:  # nothing is changed in it; edits of needs are at ()
        return (resource,)
    own = {edit.kind: edit for edit in edits.get(path, ())}
    if Kind.REQUEST in own or Kind.SLOT in own:
        return ()
    count = Count(own[Kind.COUNT].count, own[Kind.COUNT].count) if Kind.COUNT in own else resource.count
    children = _among(resource.children, path, edits)
    if Kind.LEVEL in own:
        return tuple(replace(child, count=_times(child.count, count.min)) for child in children)
    exclusive = resource.exclusive and Kind.EXCLUSIVE not in own
    needs = tuple(_needs(resource.needs, edits.get((), ())))
    unit = own[Kind.COUNT].unit if Kind.COUNT in own else resource.unit
    return (replace(resource, count=count, unit=unit, exclusive=exclusive, needs=needs, children=children),)


def _times(count: Count, times: int) -> Count:
    return count if times == 1 else Count(count.min * times, count.min * times)


def _needs(needs: tuple[Need, ...], edits: Sequence[Edit]) -> Iterator[Need]:
    for need in needs:
        gone = [condition for edit in edits if edit.need == need for condition in edit.conditions]
        conditions = tuple(condition for condition in need.conditions if condition not in gone)
        if conditions:
            yield replace(need, conditions=conditions)


def _without(constraint: Constraint | None, removed: Sequence[Constraint]) -> Constraint | None:
    if constraint is None or constraint in removed:
        return None
    if constraint.operator == "and":
        stored = tuple(part for operand in constraint.operands if (part := _without(operand, removed)))
        return replace(constraint, operands=stored) if stored else None
    if constraint.operator == "properties":
        gone = {value for part in removed if part.operator == "properties" for value in part.values[:1]}
        values = tuple(v for v in constraint.values if v not in gone or len(constraint.values) == 1)
        return replace(constraint, values=values) if values else None
    return constraint


MOST_LIKELY = 4  # sizes of vertices that are tried as counts
