"""What is held of workers as text: paths of vertices below the worker, `socket0/core[0-5]`, `memory0:40`.

    ""              the whole worker            memory0:40   so many base units of a divisible vertex
    core[0-5],gpu0  whole vertices, folded      ~core:4      so many units of no core in particular

Paths are of the names that the graph gives: they hold when the graph has changed, for as long as the vertex is there.
A name that another sibling bears too is followed by its place among the siblings, `core#3`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rainbow.jobspec.hostlist import expand_hosts, expand_ids, fold_hosts, fold_ids
from rainbow.matching.workers.worker_use import workers_of

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.matching.model.layout import ClusterLayout
    from rainbow.matching.workers.worker_use import Workers

Held = Mapping[str, Sequence[str]]  # {worker: paths}; "": what lies in no worker, by id
Amounts = dict[tuple[int, bool], int]  # {(position, whole): base units}

BOUND = ("core", "gpu")  # what tasks are bound to
_MEANT = re.compile(r"[\s%/:\[\],~#]")
_COMMA = re.compile(r",(?![^\[]*\])")
_MOST_VERTICES = 1_000_000  # vertices in one folded path


def _named(name: str) -> str:
    """Write a name without what has a meaning in paths."""
    return _MEANT.sub(lambda result: f"%{ord(result[0]):02X}", name)


class Paths:
    """The vertices of a worker by path."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self.places = {path: i for i, path in enumerate(paths)}


_known: WeakKeyDictionary[Workers, tuple[dict[int, Paths], dict[tuple[str, ...], Paths]]] = WeakKeyDictionary()


def paths_of(workers: Workers, worker: int) -> Paths:
    """Return the paths within a worker; workers whose vertices have the same names share them."""
    known, alike = _known.setdefault(workers, ({}, {}))
    if worker not in known:
        paths = _paths(workers, worker)
        known[worker] = alike.get(paths) or alike.setdefault(paths, Paths(paths))
    return known[worker]


def _paths(workers: Workers, worker: int) -> tuple[str, ...]:
    inside, outline, spot = workers.stands[worker].layout, workers.outline, workers.spots[worker]
    copies = [(spot.entry, spot.copy)]
    for i in range(1, len(inside)):
        copies.append(outline.at(*copies[inside.parents[i]], inside.places[i]))
    names = [(inside.parents[i], copies[i][1].name or copies[i][1].id) for i in range(len(inside))]
    alike = Counter(names)
    paths = [""]
    for i in range(1, len(inside)):
        above, name = paths[inside.parents[i]], _named(names[i][1])
        name = f"{name}#{inside.places[i]}" if alike[names[i]] > 1 else name
        paths.append(f"{above}/{name}" if above else name)
    return tuple(paths)


def written(workers: Workers, worker: int, held: Amounts) -> list[str]:
    """Write what is held of a worker."""
    if list(held) == [(0, True)]:
        return [""]
    stand, paths = workers.stands[worker], paths_of(workers, worker).paths
    results, wholes = [], []
    for (i, whole), amount in sorted(held.items()):
        if i < 0:
            results.append(f"~{_pool(stand.pools, -1 - i)}:{amount}")
        elif whole or (i and amount == stand.layout.amount(i)):
            wholes.append(paths[i])
        else:
            results.append(f"{paths[i]}:{amount}")
    return [*(_COMMA.split(fold_hosts(wholes)) if wholes else ()), *results]


def read(workers: Workers, worker: int, paths: Sequence[str]) -> Amounts:
    """Read what is held of a worker; paths that are not there are left out."""
    stand, result = workers.stands[worker], Amounts()
    places = paths_of(workers, worker).places if any(paths) else {"": 0}
    for path in paths:
        name, _, amount = path.partition(":")
        units = int(amount) if amount.isdecimal() else None
        if name.startswith("~"):
            pools = [-1 - k for k in range(len(stand.pools)) if _pool(stand.pools, k) == name[1:]]
            result |= {(i, False): units or 0 for i in pools}
            continue
        for each in expand_hosts(name, _MOST_VERTICES) or [name]:
            i = places.get(each)
            if i is not None:
                whole = units is None and (not i or not stand.layout.is_leaf(i))
                result[i, whole] = stand.layout.amount(i) if units is None else units
    return result


def as_placed(workers: Workers, worker: int, paths: Sequence[str], placement: Mapping[str, int]) -> Amounts:
    """Read what is held of a worker, leaves as much as a placement says: the graph may have changed.

    A path without an amount is all that its vertex had then. Of vertices that have grown the largest give back first:
    siblings were mostly equal. What a vertex that has shrunk lacks is held of it all the same, unless one is gone.
    """
    held, layout = read(workers, worker, paths), workers.stands[worker].layout
    inside = {at for i, whole in held if whole for at in range(i, layout.last[i])}
    by_type: dict[str, list[int]] = {}
    for i, whole in held:
        if i >= 0 and not whole and i not in inside:
            by_type.setdefault(layout.types[i], []).append(i)
    is_complete = len(held) == sum(
        len(expand_hosts(each.partition(":")[0], _MOST_VERTICES) or [each]) for each in paths
    )
    for type_, own in by_type.items():
        in_wholes = sum(layout.amount(at) for at in inside if layout.types[at] == type_)
        floats = sum(n for (i, _), n in held.items() if i < 0 and workers.stands[worker].pools[-1 - i][0] == type_)
        remaining, there = placement.get(type_, 0) - in_wholes - floats, sum(held[i, False] for i in own)
        if 0 < remaining < there:
            for k, i in enumerate(sorted(own, key=lambda i: held[i, False])):
                held[i, False] = min(held[i, False], remaining // (len(own) - k))
                remaining -= held[i, False]
            held = {key: n for key, n in held.items() if n or key[1]}
        elif there < remaining and is_complete:
            held[own[0], False] += remaining - there
    return held


def numbered(cluster: Cluster, held: Held) -> dict[str, dict[str, str]]:
    """Return which cores and GPUs of each worker are held, counted in depth-first order: {"node0": {"core": "0-5"}}.

    Of a worker some of whose cores float nothing is said.
    """
    workers, result = workers_of(cluster), dict[str, dict[str, str]]()
    for name, number in ((name, workers.numbers[name]) for name in held if name in workers.numbers):
        layout, amounts = workers.stands[number].layout, read(workers, number, held[name])
        inside = {
            at for (i, whole), _ in amounts.items() if i >= 0 for at in range(i, layout.last[i] if whole else i + 1)
        }
        for type_ in BOUND if all(i >= 0 for i, _ in amounts) else ():
            places = [k for k, i in enumerate(layout.by_type.get(type_, ())) if i in inside]
            if places and layout.single(type_):
                result.setdefault(name, {})[type_] = fold_ids(places)
    return result


def meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two lists of paths of a worker name a vertex that is, or lies in, one of the other.

    >>> [meet(paths, ["socket0/core3"]) for paths in (["socket0/core[0-3]"], ["socket0"], [""], ["socket0/core4"])]
    [True, True, True, False]
    """
    first, second = (
        {name for path in paths for name in expand_hosts(path.partition(":")[0], _MOST_VERTICES) or [path]}
        for paths in (one, other)
    )
    return any(above in second for name in first for above in _above(name)) or any(
        above in first for name in second for above in _above(name)
    )


def _above(path: str) -> Iterator[str]:
    """Yield a path and those of what it lies in, the worker's last."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def at_numbers(cluster: Cluster, numbers: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the paths of what is counted so; workers and numbers that are not there are left out."""
    workers, result = workers_of(cluster), dict[str, list[str]]()
    for name, number in ((name, workers.numbers[name]) for name in numbers if name in workers.numbers):
        layout, held = workers.stands[number].layout, Amounts()
        for type_ in BOUND:
            there = layout.by_type.get(type_, ())
            for k in expand_ids(numbers[name].get(type_, ""), _MOST_VERTICES) or ():
                if k < len(there) and layout.single(type_):
                    held[there[k], not layout.is_leaf(there[k])] = layout.amount(there[k])
        result[name] = written(workers, number, held)
    return result


def written_ids(laid_out: ClusterLayout, held: Amounts) -> list[str]:
    """Write what is held of the whole cluster."""
    return [f"{_named(laid_out.vertex(i))}{'' if whole else f':{n}'}" for (i, whole), n in sorted(held.items())]


def read_ids(laid_out: ClusterLayout, ids: Iterable[str]) -> Amounts:
    """Read what is held of the whole cluster; vertices that are not there are left out."""
    places, result = {_named(laid_out.vertex(i)): i for i in range(len(laid_out))}, Amounts()
    for each in ids:
        name, is_part, amount = each.partition(":")
        if name in places:
            result[places[name], not is_part] = int(amount or 0)
    return result


def _pool(pools: Sequence[tuple[str, str]], k: int) -> str:
    """Name a pool: by its type, and its quantity where the type has several."""
    type_, measured = pools[k]
    return _named(type_ if sum(each == type_ for each, _ in pools) == 1 else f"{type_}@{measured}")
