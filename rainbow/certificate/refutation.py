"""Refutations: why each variant of a request does not fit, in numbers that can be counted again.

    type        the graph has no vertex of the type
    total       the amounts asked for, multiplied, exceed the sum of sizes
    bound       a request, its siblings aside, has at most `found` units on what is free
    exhaustion  none of these: every way was tried; `steps` says how long the search was

They are counted here, from the graph and the request, by code that shares nothing with the search.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.certificate.bounds import Nodes, bounds
from rainbow.certificate.checker import vertices_of
from rainbow.certificate.exhaustion import MOST_VERTICES, Exhaustion, TooManyError
from rainbow.errors import InputError
from rainbow.jobspec.quantities import quantity

if TYPE_CHECKING:
    from rainbow.certificate.checker import Held, Meets
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource

KINDS = ("type", "total", "bound", "exhaustion")
KEYS = {
    "type": ("kind", "type", "wanted", "found"),
    "total": ("kind", "type", "wanted", "found"),
    "bound": ("kind", "request", "wanted", "found"),
    "exhaustion": ("kind", "steps"),
}
MOST = 10_000  # refutations of one answer


class Refutation(NamedTuple):
    """Why one variant does not fit: amounts in base units."""

    kind: str
    subject: str | int = ""  # a type, or the number of a request
    wanted: int = 0
    found: int = 0
    steps: int = 0

    def document(self) -> dict[str, Any]:
        """Write it as JSON."""
        values = {"kind": self.kind, "type": self.subject, "request": self.subject}
        values |= {"wanted": self.wanted, "found": self.found, "steps": self.steps}
        return {key: values[key] for key in KEYS[self.kind]}

    def __str__(self) -> str:
        """Say it in a line."""
        if self.kind == "exhaustion":
            return f"exhaustion: {self.steps} steps"
        name = f"request {self.subject}" if self.kind == "bound" else self.subject
        return f"{self.kind}: {name}, wanted {self.wanted}, found {self.found}"


def refutations(
    request: Request,
    cluster: Cluster,
    held: Held,
    meets: Meets,
    *,
    steps: Sequence[int] = (),
    closed: Collection[str] = (),
) -> list[Refutation]:
    """Refute each variant by the first of the kinds that holds; `steps`: of the search, by variant."""
    nodes = None if cluster.levels == "strict" else Nodes(request, cluster, held, closed, meets)
    result: list[Refutation] = []
    for number, resources in enumerate(request.variants):
        first = _of_sums(resources, cluster) or (nodes and _bound(nodes, resources))
        result.append(first or Refutation("exhaustion", steps=steps[number] if number < len(steps) else 0))
    return result


def refutation_faults(
    request: Request, cluster: Cluster, held: Held, claims: Sequence[Refutation], meets: Meets
) -> tuple[list[str], list[str]]:
    """Count claims again: what is wrong with them, and what could not be checked."""
    if len(claims) != len(request.variants):
        return [f"{len(claims)} refutations of {len(request.variants)} variants"], []
    faults, unchecked = list[str](), list[str]()
    own = refutations(request, cluster, held, meets)
    for number, (claim, counted) in enumerate(zip(claims, own, strict=True)):
        fault = _fault(claim, request, number, cluster, held, meets)
        if fault:
            faults.append(f"variant {number}: {fault}")
        elif claim.kind == "exhaustion" and counted.kind == "exhaustion":
            tried = _tried(request, number, cluster, held, meets)
            if isinstance(tried, str):
                unchecked.append(f"variant {number}: {tried}")
            elif tried:
                faults.append(f"variant {number}: there is a way to meet it")
    return faults, unchecked


def _fault(
    claim: Refutation, request: Request, number: int, cluster: Cluster, held: Held, meets: Meets
) -> str | None:
    """Return why a claim of a type, a total or a bound does not hold."""
    resources = request.variants[number]
    if claim.kind == "type":
        there = sum(size for kind, size in cluster.totals.items() if kind == claim.subject)
        query = dict(_multiplied(resources)).get(str(claim.subject), 0)
        if there or claim.found or query != claim.wanted or not query:
            return f"type: the request wants {query} of {claim.subject}, the graph has {there}"
    if claim.kind == "total":
        counted = None if cluster.levels == "strict" else _totals(resources, cluster).get(str(claim.subject))
        if counted is None or counted != (claim.wanted, claim.found) or claim.wanted <= claim.found:
            requirement, there = counted or (0, 0)
            return f"total: of {claim.subject} {requirement} are wanted, {there} are there"
    if claim.kind == "bound":
        if cluster.levels == "strict":
            return "bound: a cluster of strict levels is not counted so"
        every = bounds(Nodes(request, cluster, held, (), meets), resources)
        requirement, there = next(
            ((requirement, there) for at, requirement, there in every if at == claim.subject), (0, 0)
        )
        if claim.wanted != requirement or there > claim.found or claim.found >= requirement:
            return f"bound: request {claim.subject} wants {requirement}, at most {there} are there"
    return None


def _tried(request: Request, number: int, cluster: Cluster, held: Held, meets: Meets) -> bool | str:
    """Return whether there is a way to meet a variant, or why that was not tried."""
    many = sum(cluster.outline.numbers.values())
    if many > MOST_VERTICES:
        return f"exhaustion is checked up to {MOST_VERTICES} vertices, the graph has {many}"
    if cluster.levels == "strict":
        return "exhaustion is not checked where levels are strict"
    try:
        nodes = Nodes(request, cluster, held, (), meets, listed=True)
        return Exhaustion(nodes).is_possible(request.variants[number])
    except TooManyError:
        return "there are too many ways to try them all"


def _multiplied(resources: Sequence[Resource]) -> Mapping[str, int]:
    """Sum what is asked for by type, in units as they are written."""
    sums: dict[str, int] = {}
    for r, times in _each(resources):
        sums[r.type] = sums.get(r.type, 0) + times
    return sums


def _each(resources: Sequence[Resource]) -> list[tuple[Resource, int]]:
    """Return every request but slots, with how many are asked for in all."""
    result, stack = list[tuple["Resource", int]](), [(r, 1) for r in reversed(resources)]
    while stack:
        r, times = stack.pop()
        times *= r.count.min
        stack.extend((child, times) for child in reversed(r.children))
        if not r.is_slot:
            result.append((r, times))
    return result


def _totals(resources: Sequence[Resource], cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Return by type what is asked for and the sum of sizes, in base units, where all can be added."""
    vertices, result = vertices_of(cluster), dict[str, tuple[int, int]]()
    sizes: dict[str, dict[str, int]] = {}
    outline = cluster.outline
    for fields, many in zip(outline.fields, outline.many, strict=True):
        measured, factor = quantity(fields.unit)
        own = sizes.setdefault(fields.type, {})
        own[measured] = own.get(measured, 0) + fields.size * factor * many
    for r, times in _each(resources):
        own = sizes.get(r.type, {})
        measured = next(iter(own), "")
        requirement, factor = quantity(r.unit)
        if not r.unit:
            requirement, factor = measured, vertices.largest.get((r.type, measured), 0 if measured else 1)
        if len(own) != 1 or requirement != measured or not factor:
            result[r.type] = (0, 1)  # they cannot be added
            continue
        request, there = result.get(r.type, (0, own[measured]))
        is_amount = not r.children
        if request or r.type not in result:
            result[r.type] = (request + times * (factor if is_amount else 1), there)
    return result


def _of_sums(resources: Sequence[Resource], cluster: Cluster) -> Refutation | None:
    """Return the first type that is missing or too little in all; where levels are strict no sizes are added."""
    types, totals = vertices_of(cluster).types, {} if cluster.levels == "strict" else _totals(resources, cluster)
    for kind, request in _multiplied(resources).items():
        if kind not in types:
            return Refutation("type", kind, request, 0)
        requirement, there = totals.get(kind, (0, 0))
        if requirement > there:
            return Refutation("total", kind, requirement, there)
    return None


def _bound(nodes: Nodes, resources: Sequence[Resource]) -> Refutation | None:
    for number, requirement, there in bounds(nodes, resources):
        if there < requirement:
            return Refutation("bound", number, requirement, there)
    return None


def read_refutations(document: Any) -> list[Refutation]:
    """Read refutations; InputError with a JSON Pointer to the first fault."""
    if not isinstance(document, list):
        raise InputError("refutations are a list, one a variant", pointer="/refutation")
    if len(document) > MOST:
        raise InputError(f"{len(document)} refutations, at most {MOST} are read", pointer="/refutation")
    return [_read(one, f"/refutation/{n}") for n, one in enumerate(document)]


def _read(one: Any, at: str) -> Refutation:
    kind = one.get("kind") if isinstance(one, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"a refutation has a kind: {', '.join(KINDS)}", pointer=f"{at}/kind")
    wrong = next((key for key in one if key not in KEYS[kind]), None)
    lacking = next((key for key in KEYS[kind] if key not in one), None)
    if wrong is not None or lacking is not None:
        key = str(wrong if wrong is not None else lacking)[:60]
        raise InputError(f"a refutation of kind {kind} has {', '.join(KEYS[kind])}", pointer=f"{at}/{key}")
    for key in KEYS[kind]:
        value = one[key]
        if key not in ("kind", "type") and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise InputError(f"expected a whole number, got {str(value)[:60]}", pointer=f"{at}/{key}")
        if key == "type" and not isinstance(value, str):
            raise InputError("a type is a text", pointer=f"{at}/type")
    subject = one.get("type", one.get("request", ""))
    return Refutation(kind, subject, one.get("wanted", 0), one.get("found", 0), one.get("steps", 0))
