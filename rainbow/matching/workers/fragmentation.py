"""Why a request does not fit although amounts suffice: "4 cores are free on node0, no socket has 4".

And what is free of a place in part: what is kept for a job that will fit there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rainbow.matching.model.layout import OUTSIDE, pools_of
from rainbow.matching.quick_check import UNCOUNTED
from rainbow.matching.upper_bound import UpperBound
from rainbow.matching.workers.occupancy import Located
from rainbow.text import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rainbow.jobspec import Request, Resource
    from rainbow.matching.workers.allocation import CandidateHeap
    from rainbow.matching.workers.occupancy import Occupancy
    from rainbow.matching.workers.worker_use import UseState


@dataclass(frozen=True, slots=True)
class Fragmented:
    """What is free of a worker, and what it does not lie in; in words, and as facts."""

    text: str
    facts: Mapping[str, Any]


def fragmented(occupancy: Occupancy, request: Request) -> Fragmented | None:
    """Say what of a request is free in amounts only; None if amounts are too small, or it fits.

    Of several workers the one speaks where most units are free that cannot be had.
    """
    offers = occupancy.offers(request)
    if offers is None or _takes_workers(offers.shape.unit, occupancy.workers.rooted.worker_type):
        return None
    units: dict[int, tuple[int, int]] = {}  # by state: units that its amounts are enough for, units that it offers
    total, most, speaks = 0, 0, None
    for worker, state in enumerate(occupancy.states):
        if worker in occupancy.closed:
            continue
        if state.number not in units:
            units[state.number] = _units_of(offers, state)
        enough, offered = units[state.number]
        total += enough
        if enough - offered > most:
            most, speaks = enough - offered, worker
    if speaks is None or total < offers.shape.wanted:
        return None
    return _fragmented(occupancy.workers.names[speaks], offers.shape.unit, occupancy.states[speaks])


def _takes_workers(unit: Resource, worker_type: str) -> bool:
    """Return whether a unit is a worker as a whole: that others use it says all."""
    parts = [part for part in unit.walk() if part.type == worker_type]
    return any(part.exclusive or not part.children for part in parts)


def _units_of(offers: CandidateHeap, state: UseState) -> tuple[int, int]:
    least = offers.amounts_on(state.stand)
    if not least or not offers.passes(state.stand):
        return 0, 0
    most = offers.shape.wanted if offers.shape.packs else 1
    enough = min(most, *(state.free.get(type_, 0) // amount for type_, amount in least.items()))
    offer = offers.offer(state, most) if enough > 0 else None
    return max(enough, 0), offer.units if offer else 0


def _fragmented(worker: str, unit: Resource, state: UseState) -> Fragmented:
    short = next((results for part in unit.walk() if (results := _short(part, state)) is not None), None)
    first = next((part for part in unit.walk() if not part.children and not part.is_slot), unit)
    part, where, said = short or (first, "", "not together as it is wanted")
    free = _free(part, state)
    text = f"{_amount(part, free)} {'is' if free == 1 or part.type in UNCOUNTED else 'are'} free on {worker}, {said}"
    answer = {"worker": worker, "type": part.type, "free": free, "wanted": part.count.min, "in": where}
    return Fragmented(text, {"fragmented": answer})


def _short(part: Resource, state: UseState) -> tuple[Resource, str, str] | None:
    """Return what is short in every vertex a part may stand on, the type of those, and that in words."""
    layout, taken = state.stand.layout, state.stand.taken(state)
    if part.is_slot or (part.type == layout.worker_type and part.children):
        return None
    bound, leaf = UpperBound(layout, taken), next((p for p in part.walk() if not p.children), part)
    noun = part.type + (f" with {_needed(part)}" if part.needs else "")
    usable = [i for i in layout.by_type.get(part.type, ()) if bound.meets(part.needs, i)]
    if part.exclusive or (part.type in layout.compound and not part.children):
        usable = [i for i in usable if taken.untouched(i)]
        if len(usable) < part.count.min:
            return leaf, part.type, f"{_only(len(usable), noun)} free of other jobs"
    if not part.children:
        usable = [i for i in usable if taken.headroom(i, layout.pool(i)) > 0] if part.needs else usable
        return (part, part.type, f"{_only(len(usable), noun)} free") if len(usable) < part.count.min else None
    for child in part.children:
        having = sum(bound.available(child, i, i + 1) >= child.count.min for i in usable)
        if having < part.count.min:
            target = f"{child.count.min}{child.unit and f' {child.unit}'}"
            return child, part.type, f"{f'only {having}' if having else 'no'} {noun} has {target}"
    if sum(bound.can_host(part, i, False) for i in usable) < part.count.min:
        every = [_amount(child, child.count.min) for child in part.children]
        return leaf, part.type, f"no {noun} has {', '.join(every[:-1])} and {every[-1]}"
    return None


def _only(count: int, noun: str) -> str:
    return f"only {count} {noun} is" if count else f"no {noun} is"


def _needed(part: Resource) -> str:
    return ", ".join(dict.fromkeys(need.subsystem for need in part.needs))


def _free(part: Resource, state: UseState) -> int:
    """Return what is free of a type, as a request counts it."""
    pools: Sequence[Any] = list(pools_of(part, state.stand.layout.pools))
    return state.free.get(part.type, 0) // (pools[0][1] if pools else 1)


def _amount(part: Resource, amount: int) -> str:
    """Write an amount: "4 cores", "64 GB memory"."""
    if part.unit or part.type in UNCOUNTED:
        return f"{amount} {part.unit} {part.type}".replace("  ", " ")
    return some(amount, part.type)


def free_part(occupancy: Occupancy, pieces: Iterable[Located], unit: str, most: int) -> tuple[Located, ...]:
    """Return what is free of the leaves of a place, of one type no more than `most`."""
    results: list[Located] = []
    for label, worker, part in pieces:
        if worker == OUTSIDE:
            continue
        state = occupancy.states[worker]
        layout, held = state.stand.layout, dict[tuple[int, bool], int]()
        shut = {at for i in state.whole for at in range(i, layout.last[i])}
        for i, amount, whole in part.amounts:
            for at in range(i, layout.last[i] if whole else i + 1) if i >= 0 else ():
                if at in shut or not layout.is_leaf(at):
                    continue
                room = layout.amount(at) - state.used.get(at, 0)
                stored = max(0, min(room, room if whole else amount))
                if layout.types[at] == unit:
                    stored = min(stored, most)
                    most -= stored
                if stored:
                    held[at, False] = held.get((at, False), 0) + stored
        if held:
            results.append(Located(label, worker, state.stand.part(held)))
    return tuple(results)
