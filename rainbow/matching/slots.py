"""Slots of several kinds on workers, as vectors packed into bins: decided where a search would branch for long.

The model leaves out what slots take elsewhere and what other requests take. So where it has no solution there is
none; where it has one, the search follows it, and does without it if that leads nowhere.

    first fit   the demanding kinds first, each into the fullest bin that has room, in several orders
    patterns    whole counts of every fullest filling of a bin, by scipy's HiGHS (extra `optimal`); Gilmore and Gomory
    counts      whole counts of each kind in each bin, where there are too many fillings
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.cache import LazyModule
from rainbow.matching.model.budget import OutOfBudgetError
from rainbow.matching.model.layout import pools_of
from rainbow.matching.upper_bound import UpperBound, for_one_slot, may_take_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rainbow.jobspec import Resource
    from rainbow.matching.model.budget import Meter
    from rainbow.matching.model.layout import Layout
    from rainbow.matching.trail import Trail

    Array = NDArray[Any]
else:  # most requests are of slots of one kind
    np = LazyModule("numpy")

Place = tuple[int, bool]  # a position, and whether what lies outside every worker below it is meant
Plan = Mapping[int, Mapping[int, tuple[int, bool, int]]]  # by slot and how many are placed: a place, and how many
ORDERS = 32  # of kinds, that are tried before the solver
MOST_KINDS = 2_000
LARGEST = 1 << 60  # of what all slots take together
MOST_PATTERNS = 1_500
MOST_TRIED = 32 * MOST_PATTERNS  # fillings begun
MOST_COUNTS = 400  # kinds times bins; of more the solver hardly finds any in a second
LARGEST_COUNTED = 100_000  # amount in a bin that the solver tells from a little less
INFEASIBLE = 2  # what scipy calls it
NODES = 200  # of the solver's tree: a limit that is alike on every machine
LEAST_SECONDS = 0.05  # for the solver


class DoesNotPackError(Exception):
    """No packing exists."""


class Kind(NamedTuple):
    """The slots of one request: how many, what each takes by dimension, and where they may be."""

    slot: int
    wanted: int
    takes: Mapping[Any, int]
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Bins:
    """The kinds and the bins as arrays."""

    places: Sequence[Place]
    counts: Array  # kinds
    takes: Array  # kinds × dimensions
    room: Array  # bins × dimensions
    allowed: Array  # kinds × bins


def is_packing(resources: tuple[Resource, ...]) -> bool:
    """Return whether a request is of several kinds of slots."""
    return 1 < sum(r.is_slot for r in resources) <= MOST_KINDS


def pack(resources: tuple[Resource, ...], layout: Layout, taken: Trail, meter: Meter) -> Plan | None:
    """Return a place for every slot, None where that is not known; DoesNotPackError, OutOfBudgetError."""
    bound = UpperBound(layout, taken, meter=meter)
    kinds = list(_kinds(resources, layout, bound))
    if len(kinds) < 2 or max(kind.wanted * each for kind in kinds for each in kind.takes.values()) > LARGEST // len(
        kinds
    ):
        return None
    bins = _bins(kinds, layout, taken, bound)
    result = _first_fit(bins, meter)
    if result is None:
        result = _solved(bins, meter)
    return None if result is None else _plan(kinds, bins, result)


# ── the model ──


def _kinds(resources: tuple[Resource, ...], layout: Layout, bound: UpperBound) -> Iterator[Kind]:
    for slot in resources:
        divided = bound.divided(slot, 0, hosted=False) if slot.is_slot else None
        if divided is None or not divided.placed:
            continue
        takes: Counter[Any] = Counter()
        for child in divided.placed:
            takes.update(_dimension(child, layout))
        if takes := +takes:
            places = frozenset(bound.places(divided.placed, divided.needs, 0, 0, outside=False))
            yield Kind(slot.place, slot.count.min, takes, places)


def _dimension(child: Resource, layout: Layout) -> dict[Any, int]:
    """Say what one slot takes of a pool, or of vertices one by one; nothing where a search has to say it."""
    if child.is_slot or child.children or child.needs:
        return {}
    if may_take_whole(child, layout.compound):
        alike = all(size == 1 for size, _, _ in layout.sizes_of(child.type))
        units = for_one_slot(child, layout) if alike else None
        return {child.type: units} if units else {}
    pools = list(pools_of(child, layout.pools))
    return {pool: child.count.min * factor for pool, factor in pools} if len(pools) == 1 else {}


def _bins(kinds: Sequence[Kind], layout: Layout, taken: Trail, bound: UpperBound) -> Bins:
    """Measure every place; more room than all slots take together is as good as that."""
    dimensions = list(dict.fromkeys(each for kind in kinds for each in kind.takes))
    counts = np.array([kind.wanted for kind in kinds], dtype=np.int64)
    takes = np.array([[kind.takes.get(each, 0) for each in dimensions] for kind in kinds], dtype=np.int64)
    places = sorted({place for kind in kinds for place in kind.places})
    takes //= (unit := np.gcd.reduce(takes, 0))
    most = counts @ takes
    room = np.zeros((len(places), len(dimensions)), dtype=np.int64)
    for at, place in enumerate(places):
        bound.meter.step(len(dimensions))
        for k, each in enumerate(dimensions):
            room[at, k] = min(int(most[k]), _room(each, place, layout, taken, bound) // int(unit[k]))
    allowed = np.array([[place in kind.places for place in places] for kind in kinds], dtype=bool)
    return Bins(places, counts, takes, room, allowed.reshape(len(kinds), len(places)))


def _room(dimension: Any, place: Place, layout: Layout, taken: Trail, bound: UpperBound) -> int:
    position, outside = place
    if isinstance(dimension, tuple):
        return bound.in_pool(dimension, position, outside)
    those = layout.of_type(dimension, position, layout.last[position])
    return sum(taken.open(i, position) and not (outside and layout.worker[i] >= 0) for i in those)


# ── first fit ──


def _first_fit(bins: Bins, meter: Meter) -> Array | None:
    """Return how many slots of each kind each bin gets, None if no order does it."""
    size = bins.takes / np.maximum(bins.room.sum(0), 1)
    chance = np.random.default_rng(0)
    for turn in range(ORDERS):
        weights = size.max(1) if turn % 2 else size.sum(1)
        if turn > 1:
            weights = weights * np.exp(chance.normal(0, 0.3, len(weights)))
        if (result := _filled(bins, np.argsort(-weights, kind="stable"), meter)) is not None:
            return result
    return None


def _filled(bins: Bins, order: Array, meter: Meter) -> Array | None:
    free, placed = bins.room.copy(), np.zeros((len(bins.counts), len(bins.places)), dtype=np.int64)
    whole = np.maximum(bins.room, 1)
    for k in order:
        takes, remaining = bins.takes[k], int(bins.counts[k])
        used = takes > 0
        while remaining:
            meter.step(1 + len(bins.places) // 8)
            times = np.where(bins.allowed[k], (free[:, used] // takes[used]).min(1), 0)
            fitting = np.flatnonzero(times)
            if not len(fitting):
                return None
            fullest = fitting[np.argmin((free[fitting] / whole[fitting]).sum(1))]
            many = min(remaining, int(times[fullest]))
            free[fullest] -= many * takes
            placed[k, fullest] += many
            remaining -= many
    return placed


# ── the solver ──


def _solved(bins: Bins, meter: Meter) -> Array | None:
    with meter.standing():  # the first import takes longer than what it is for
        try:
            import scipy.optimize  # type: ignore[import-untyped]  # noqa: F401 - it has no types
        except ImportError:
            return None
    alike: dict[Any, list[int]] = {}
    for at in range(len(bins.places)):
        alike.setdefault((tuple(bins.room[at].tolist()), tuple(bins.allowed[:, at].tolist())), []).append(at)
    groups = list(alike.values())
    patterns = _patterns(bins, [ats[0] for ats in groups], meter)
    if patterns is not None:
        return _by_patterns(bins, groups, patterns, meter)
    is_small = bins.allowed.size <= MOST_COUNTS and bins.room.max() <= LARGEST_COUNTED
    return _by_counts(bins, meter) if is_small else None


def _patterns(bins: Bins, firsts: Sequence[int], meter: Meter) -> list[list[list[int]]] | None:
    """Return, for each of these bins, every filling to which no slot can be added; None if they are too many."""
    result, remaining = [], MOST_PATTERNS
    try:
        with meter.part(MOST_TRIED) as tries:
            for at in firsts:
                result.append(list(islice(_fillings(bins, at, tries), remaining + 1)))
                remaining -= len(result[-1])
                if remaining < 0:
                    return None
    except OutOfBudgetError:
        meter.check()
        return None
    return result


def _fillings(bins: Bins, at: int, meter: Meter) -> Iterator[list[int]]:
    """Yield the fullest fillings of one bin, depth first over the kinds, the demanding ones first."""
    kinds = [k for k in np.argsort(-bins.takes.max(1), kind="stable").tolist() if bins.allowed[k, at]]
    takes = [[(d, each) for d, each in enumerate(bins.takes[k].tolist()) if each] for k in kinds]
    counts = bins.counts.tolist()
    stack: list[tuple[list[int], list[int]]] = [([], bins.room[at].tolist())]
    while stack:
        meter.step()
        chosen, free = stack.pop()
        depth = len(chosen)
        if depth == len(kinds):
            if all(n == counts[k] or not _times(free, of) for n, k, of in zip(chosen, kinds, takes, strict=True)):
                filling = [0] * len(counts)
                for n, k in zip(chosen, kinds, strict=True):
                    filling[k] = n
                yield filling
            continue
        for n in range(min(counts[kinds[depth]], _times(free, takes[depth])) + 1):
            remaining = list(free)
            for d, each in takes[depth]:
                remaining[d] -= n * each
            stack.append(([*chosen, n], remaining))


def _times(free: Sequence[int], takes: Sequence[tuple[int, int]]) -> int:
    return min(free[d] // each for d, each in takes)


def _by_patterns(
    bins: Bins, groups: Sequence[Sequence[int]], patterns: Sequence[Sequence[Sequence[int]]], meter: Meter
) -> Array | None:
    columns = [(g, filling) for g, own in enumerate(patterns) for filling in own]
    of_kind = np.array([filling for _, filling in columns]).T
    of_group = np.array([[float(g == own) for own, _ in columns] for g in range(len(groups))])
    limits = [(of_kind, bins.counts, inf), (of_group, 0, np.array([len(ats) for ats in groups]))]
    result = _whole_numbers(len(columns), limits, meter)
    if result is None:
        return None
    placed, free = np.zeros(bins.allowed.shape, dtype=np.int64), [list(ats) for ats in groups]
    remaining = bins.counts.copy()
    for (g, filling), times in zip(columns, result.tolist(), strict=True):
        for _ in range(times):
            placed[:, free[g].pop()] = counts = np.minimum(filling, remaining)
            remaining -= counts
    return placed


def _by_counts(bins: Bins, meter: Meter) -> Array | None:
    from scipy.sparse import eye_array, kron, vstack  # type: ignore[import-untyped]  # it has no types

    many, kinds = len(bins.places), len(bins.counts)
    of_kind = kron(eye_array(kinds), np.ones((1, many)), format="csr")
    of_bin = vstack([kron(bins.takes[:, [d]].T, eye_array(many)) for d in range(bins.takes.shape[1])], format="csr")
    limits = [(of_kind, bins.counts, inf), (of_bin, 0, bins.room.T.ravel())]
    result = _whole_numbers(kinds * many, limits, meter, upper=(bins.allowed * bins.counts[:, None]).ravel())
    if result is None:
        return None
    placed = result.reshape(kinds, many)
    for k, over in enumerate((placed.sum(1) - bins.counts).tolist()):
        for at in np.flatnonzero(placed[k]):
            less = min(over, int(placed[k, at]))
            placed[k, at] -= less
            over -= less
    return placed


def _whole_numbers(many: int, limits: Sequence[tuple[Any, Any, Any]], meter: Meter, upper: Any = inf) -> Array | None:
    """Return whole numbers of at least 0 within these limits, None where the solver gives up."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    meter.step(10 * many)
    meter.check()
    result = milp(
        np.zeros(many),
        integrality=np.ones(many),
        bounds=Bounds(0, upper),
        constraints=[LinearConstraint(matrix, low, high) for matrix, low, high in limits],
        options={"time_limit": max(LEAST_SECONDS, meter.seconds), "node_limit": NODES},
    )
    if result.status == INFEASIBLE:
        raise DoesNotPackError
    return None if result.x is None else np.rint(result.x).astype(np.int64)


def _plan(kinds: Sequence[Kind], bins: Bins, placed: Array) -> Plan | None:
    """Say it as the search places slots; None if the solver's numbers do not keep to the limits after all."""
    if (placed.T @ bins.takes > bins.room).any() or (placed.sum(1) != bins.counts).any():
        return None
    plan: dict[int, dict[int, tuple[int, bool, int]]] = {}
    for k, kind in enumerate(kinds):
        own, done = plan.setdefault(kind.slot, {}), 0
        for at in np.flatnonzero(placed[k]).tolist():
            own[done] = (*bins.places[at], int(placed[k, at]))
            done += own[done][2]
    return plan
