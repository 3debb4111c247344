"""The smallest change that would make a refused request match, verified by matching again.

path     where a request stands: (variant, place among the roots, place among the children, ...)
kinds    in the order of how much they hurt; the smallest change prefers the first that is enough

mild     edits that ask for less where it stands; only if all of them are not enough, requests are left out too
needed   edits without which all the others are not enough: every answer holds them
search   best first over sets of edits: those that are about what the last refusal was about, the fewest, the mildest
else     all edits that go together, taken back one after another while what is left matches

Every edit is probed in its weakest form; counts are then raised to the largest that still matches. Smallest: no
request left out, then the fewest edits, then the mildest kinds (edits.Kind), then the least share of what was asked
for, then what the refusal is about, then the order of the request. Once something matches, the search continues for
what is smaller, until nothing smaller is left or the probes are used up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from rainbow.jobspec import Constraint, Count
from rainbow.jobspec.quantities import finer, quantity
from rainbow.matching.model.budget import FREE, MatchesAll, Meter, OutOfBudgetError
from rainbow.matching.model.conditions import conjuncts, in_words
from rainbow.matching.model.layout import called
from rainbow.matching.model.verdict import Why

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Condition, Need, Request, Resource
    from rainbow.matching.model.verdict import Backend, Reason, Verdict


Path = tuple[int, ...]


class Kind(IntEnum):
    """The ways to ask for less, the mildest first."""

    COUNT = 0  # fewer, or a smaller amount
    EXCLUSIVE = 1  # shared with other jobs
    NEED = 2  # without a need, or one condition of it that does not say what is needed
    CONSTRAINT = 3  # without the constraint, or one part of it
    LEVEL = 4  # without one level: what is asked in it is asked where it stood
    REQUEST = 5  # without one request, and all below it
    SLOT = 6  # without a slot, and the tasks that run nowhere else


MILD = (Kind.COUNT, Kind.EXCLUSIVE, Kind.NEED, Kind.CONSTRAINT)  # they leave every request where it is


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
    loose = [c for c in need.conditions if c.matcher not in ("match", "flat")] if len(need.conditions) > 1 else []
    for conditions in [*((c,) for c in loose), need.conditions]:
        name = ", ".join(question(need, condition) for condition in conditions)
        yield Edit(Kind.NEED, of=name, need=need, conditions=conditions)


def question(need: Need, condition: Condition) -> str:
    """Name a condition by its matcher, its subsystem and its field: "range on spack.version"."""
    matcher = "match" if condition.matcher == "flat" else condition.matcher
    field = condition.options.get("field", "")
    told = field if f"{field}.".startswith(f"{need.subsystem}.") else f"{need.subsystem}.{field}"
    return f"{matcher} on {told.rstrip('.')}"


def _of_constraint(constraint: Constraint | None) -> Iterator[Edit]:
    if constraint is None:
        return
    parts = list(conjuncts(constraint))
    for part in parts if parts != [constraint] else []:
        yield Edit(Kind.CONSTRAINT, of=f"constraint {in_words(part)}", constraint=part)
    yield Edit(Kind.CONSTRAINT, of=f"constraint {in_words(constraint)}", constraint=constraint)


def names_of(request: Request, edit: Edit) -> frozenset[str]:
    """Return what a refusal may be about that an edit could mend: types, slots, subsystems, the constraint."""
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
    return replace(request, variants=variants, tasks=tasks, constraint=_without(request.constraint, removed))


def _among(siblings: tuple[Resource, ...], path: Path, edits: dict[Path, list[Edit]]) -> tuple[Resource, ...]:
    found = (_resource(resource, (*path, place), edits) for place, resource in enumerate(siblings))
    kept = tuple(resource for resources in found for resource in resources)
    if siblings and not kept:  # without children it would ask for the whole vertex: for more, not for less
        raise NothingLeftError
    return kept


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
        kept = tuple(part for operand in constraint.operands if (part := _without(operand, removed)))
        return replace(constraint, operands=kept) if kept else None
    if constraint.operator == "properties":
        gone = {value for part in removed if part.operator == "properties" for value in part.values[:1]}
        values = tuple(v for v in constraint.values if v not in gone or len(constraint.values) == 1)
        return replace(constraint, values=values) if values else None
    return constraint


MOST_LIKELY = 4  # sizes of vertices that are tried as counts
FEW_COUNTS = 32  # halving the gap takes no more matches
PROBES = 200  # matches that finding one change may cost
DEAR = 25  # as many of them as one that was searched for in vain until its budget was used up
LARGE = 64  # requests in a job; a match of one with twice as many counts for two more
RAISING = 40  # probes that are kept for raising counts
MOST_EDITS = 6  # in a set that the search looks at
MOST_SETS = 1_000  # that the search looks at: some leave nothing of the request, and cost no probe

Edits = tuple[Edit, ...]
Rank = tuple[int, int, list[Kind]]  # edits that are not about a refusal, edits, their kinds with the worst first


@dataclass(frozen=True)
class RequestEdit:
    """Edits that together make the request match; `request` is the request with all of them made."""

    edits: tuple[Edit, ...]
    request: Request

    @property
    def text(self) -> str:
        """The change in words."""
        return "; ".join(edit.text for edit in self.edits)

    def document(self) -> dict[str, Any]:
        """Write the change as JSON."""
        return {"text": self.text, "edits": [edit.document() for edit in self.edits]}


class Probes:
    """Asks the backend about edited requests, as often and as long as it may; afterwards every answer is no."""

    def __init__(
        self, cluster: Cluster, request: Request, backend: Backend, left: int = PROBES, meter: Meter = FREE
    ) -> None:
        self.cluster, self.request, self.backend, self.left, self.meter = cluster, request, backend, left, meter

    def ask(self, edits: Sequence[Edit]) -> Verdict | None:
        """Return the verdict on the request with these edits made; None if it is empty, or no probes are left."""
        changed = edited(self.request, edits)
        if changed is None or self.left <= 0:
            return None
        if not self.has_time():
            return None
        verdict = self._verdict(changed)
        self.left -= cost(changed, verdict)
        return verdict

    def has_time(self) -> bool:
        """Return whether the time has not ended; once it has, no probe is left."""
        try:
            self.meter.check()
        except OutOfBudgetError:
            self.left = 0
        return self.left > 0

    def _verdict(self, request: Request) -> Verdict:
        if isinstance(self.backend, MatchesAll):
            return self.backend.match_all(request, [self.cluster], self.meter.probe())[0]
        return self.backend.match(request, self.cluster)

    def match(self, edits: Sequence[Edit]) -> bool:
        """Return whether the request matches with these edits made."""
        verdict = self.ask(edits)
        return verdict is not None and verdict.matched is True

    def raised(self, edits: Edits) -> Edits:
        """Raise every count to the largest that still matches, one after another."""
        for place, edit in enumerate(edits):
            if edit.kind is Kind.COUNT:
                edits = self._largest(edits, place, edit.asked)
        return edits

    def _largest(self, edits: Edits, place: int, refused: int) -> Edits:
        """Ask for what vertices have; double the count while it matches, then halve the gap to what is refused."""
        doubling = True
        if refused > FEW_COUNTS:
            for count in edits[place].likely[::-1]:
                if edits[place].count < count < refused:
                    tried = (*edits[:place], replace(edits[place], count=count), *edits[place + 1 :])
                    if not self.match(tried):
                        refused = count
                        continue
                    edits = tried
                    above = (*edits[:place], replace(edits[place], count=count + 1), *edits[place + 1 :])
                    refused = refused if count + 1 == refused or self.match(above) else count + 1
                    break
        while refused - edits[place].count > 1:
            low = edits[place].count
            count = min(2 * low, refused - 1) if doubling else (low + refused) // 2
            tried = (*edits[:place], replace(edits[place], count=count), *edits[place + 1 :])
            if self.match(tried):
                edits = tried
            else:
                refused, doubling = count, False
        return edits


def cost(request: Request, verdict: Verdict | None = None) -> int:
    """Return how many probes a match counts for."""
    parts = sum(1 for forest in request.variants for root in forest for _ in root.walk())
    dear = verdict is not None and verdict.matched is None
    return (DEAR if dear else 1) + parts // LARGE


def smallest_change(
    cluster: Cluster, request: Request, backend: Backend, probes: int = PROBES, meter: Meter = FREE
) -> RequestEdit | None:
    """Return the smallest verified change that makes a refused request match; None if none was found."""
    if cost(request) > probes:
        return None
    trial = Probes(cluster, request, backend, probes + cost(request), meter)
    verdict = trial.ask(())
    if verdict is None or verdict.matched:
        return None
    edits = sorted(edits_of(request, cluster), key=lambda edit: _order(edit, verdict.reason, cluster))
    edits = edits[: probes // cost(request)]  # each must be probed at least once
    mild = [edit for edit in edits if edit.kind in MILD]
    found = _smallest(trial, mild) or (_smallest(trial, edits) if len(mild) < len(edits) else None)
    changed = edited(request, found) if found else None
    return RequestEdit(tuple(sorted(found, key=_in_words)), changed) if found and changed else None


def _in_words(edit: Edit) -> bool:
    """What is asked of resources first, then needs and constraints."""
    return edit.kind in (Kind.NEED, Kind.CONSTRAINT)


def _smallest(trial: Probes, edits: Sequence[Edit]) -> Edits | None:
    made = _together(trial, edits)
    all_made = len(made) == len(edits)
    if all_made and not trial.match(made):
        return None
    needed = tuple(edit for edit in made if not trial.match(_but(made, edit))) if all_made else ()
    if needed and trial.match(needed):
        return trial.raised(needed)
    return _searched(trial, needed, edits) or _several(trial, made)


def _together(trial: Probes, edits: Sequence[Edit]) -> list[Edit]:
    """Make as many edits as go together, in order: a slot does not lose all that is in it."""
    made: list[Edit] = []
    for edit in edits:
        if trial.has_time() and edited(trial.request, [*made, edit]) is not None:
            made.append(edit)
    return made


def _but(edits: Sequence[Edit], one: Edit) -> list[Edit]:
    return [edit for edit in edits if edit is not one]


def _order(edit: Edit, reason: Reason | None, cluster: Cluster) -> tuple[Kind, bool, bool]:
    """The mildest first, then what the refusal is about, then what the cluster has none of."""
    return edit.kind, reason is None or edit.of != reason.subject, edit.of in cluster.totals


# ── the search ──


def _searched(trial: Probes, needed: Edits, edits: Sequence[Edit]) -> Edits | None:
    """Search best first; of what matches return the smallest, of equal ones that with the least loss."""
    about = [names_of(trial.request, edit) for edit in edits]
    start = tuple(place for place, edit in enumerate(edits) if edit in needed)
    heap: list[tuple[Rank, tuple[int, ...]]] = [(_rank(edits, start, 0), start)]
    seen, best = {start}, None
    for _ in range(MOST_SETS):
        if not heap or trial.left <= len(edits) + RAISING:
            break
        rank, places = heappop(heap)
        if best is not None and rank[1:] > best[0]:
            continue
        chosen = tuple(edits[place] for place in places)
        verdict = trial.ask(chosen)
        if verdict is not None and verdict.matched:
            raised = trial.raised(tuple(_without_idle(trial, chosen)))
            found = (_rank(raised, tuple(range(len(raised))), 0)[1:], sum((e.lost for e in raised), Fraction(0)))
            if best is None or found < best[:2]:
                best = (*found, raised)
        elif verdict is not None and len(places) < MOST_EDITS:
            for more, is_about in _next(places, verdict.reason, about):
                if more not in seen:
                    seen.add(more)
                    heappush(heap, (_rank(edits, more, rank[0] + (not is_about)), more))
    return best[2] if best else None


def _rank(edits: Sequence[Edit], places: tuple[int, ...], astray: int) -> Rank:
    return (astray, len(places), sorted((edits[place].kind for place in places), reverse=True))


def _next(
    places: tuple[int, ...], reason: Reason | None, about: Sequence[frozenset[str]]
) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield the sets with one more edit, and whether that one is about the refusal."""
    open_ended = reason is None or reason.why in (Why.SIBLINGS_COLLIDE, Why.UNDECIDED)
    subjects = frozenset(reason.subject.split(", ")) if reason else frozenset()
    for place, names in enumerate(about):
        if place not in places:
            yield tuple(sorted((*places, place))), open_ended or not subjects.isdisjoint(names)


def _several(trial: Probes, made: list[Edit]) -> Edits | None:
    """Make all edits, and take back what is not needed."""
    return trial.raised(tuple(_without_idle(trial, made))) if trial.match(made) else None


def _without_idle(trial: Probes, made: Sequence[Edit]) -> Sequence[Edit]:
    """Take edits back one after another, the worst first, while what is left matches."""
    for edit in reversed(list(made)):
        if len(made) > 1 and trial.match(_but(made, edit)):
            made = _but(made, edit)
    return made
