"""What vertices say of themselves and how much is in them, as constraints and needs ask; read from the outline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.cache import cached_property
from rainbow.jobspec.hostlist import expand_hosts, expand_ids
from rainbow.jobspec.quantities import quantity
from rainbow.jobspec.request import PROPERTIES

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Constraint

MOST_NAMES = 1_000_000  # of a hostlist


class Facts:
    """What a cluster's vertices say of themselves, by entry of its outline."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.outline = cluster, cluster.outline

    def own(self, entry: int) -> Iterator[Mapping[str, Any]]:
        """What an entry's vertex says of itself."""
        fields = self.outline.fields[entry]
        yield {"type": fields.type, "name": "", "metadata": fields.metadata}

    def properties(self, entry: int) -> Iterator[Mapping[str, Any]]:
        """The properties of the worker that an entry's vertex lies in."""
        for at in self.outline.chain(entry):
            fields = self.outline.fields[at]
            for name in fields.properties if fields.type == self.cluster.worker_type else ():
                yield {"type": PROPERTIES, "name": "", "metadata": {"property": name}}

    @cached_property
    def sums(self) -> list[dict[str, int]]:
        """How much of each type, in base units, lies in one vertex of each entry."""
        result: list[dict[str, int]] = [{} for _ in self.outline.fields]
        for entry in range(len(result) - 1, -1, -1):
            fields, up = self.outline.fields[entry], self.outline.parents[entry]
            own = result[entry]
            own[fields.type] = own.get(fields.type, 0) + fields.size * quantity(fields.unit)[1]
            for kind, amount in own.items() if up >= 0 else ():
                result[up][kind] = result[up].get(kind, 0) + amount * (self.outline.counts[entry] or 1)
        return result

    def has_fact(self, entry: int, fact: str, least: int) -> bool:
        """Return whether a worker of an entry has as much of a thing as `at_least` says."""
        threads, sums = self.outline.fields[entry].metadata.get("threads", 1), self.sums[entry]
        of, divided, kind = fact.partition("/")
        if fact == "threads":
            return bool(threads >= least)
        if fact == "cpu":
            return bool(sums.get("core", 0) * threads >= least)
        if kind == "cpu":
            return bool(sums.get(of, 0) >= least * sums.get("core", 0) * threads)
        if not divided:
            return sums.get(of, 0) >= least
        inside = (at for at, fields in enumerate(self.outline.fields) if fields.type == of)
        return any(self.sums[at].get(kind, 0) >= least for at in inside if entry in self.outline.chain(at))


def passes(constraint: Constraint, worker: Mapping[str, Any], vertices: Facts, entry: int) -> bool:
    """Return whether a worker, one of an entry, satisfies a constraint (RFC 31, and `at_least`)."""
    inner = (passes(operand, worker, vertices, entry) for operand in constraint.operands)
    if constraint.operator in ("and", "not"):
        return all(inner) == (constraint.operator == "and")
    if constraint.operator == "or":
        return not constraint.operands or any(inner)
    if constraint.operator == "at_least":
        facts = (text.rpartition("=") for text in constraint.values)
        return all(vertices.has_fact(entry, fact, int(least)) for fact, _, least in facts)
    if constraint.operator == "properties":
        return all((v.removeprefix("^") in worker["properties"]) != v.startswith("^") for v in constraint.values)
    if constraint.operator == "hostlist":
        return any(worker["name"] in (expand_hosts(text, MOST_NAMES) or ()) for text in constraint.values)
    return any(worker["rank"] in (expand_ids(text, MOST_NAMES) or ()) for text in constraint.values)
