"""Sockets and cores of a Slurm node, less those that are kept for the system."""

from __future__ import annotations

import re

from rainbow.errors import GraphError
from rainbow.graph.limits import Limits
from rainbow.graph.sources.nodes import Part
from rainbow.graph.sources.slurm_fields import Record
from rainbow.jobspec.names import expand_ids

_CPUS = re.compile(r"(?:^|,)cpu=([0-9]{1,9})(?:,|$)")


def cores_of(record: Record, limits: Limits) -> tuple[Part, ...]:
    """Return the sockets with their cores; cores alone where sockets are not said, or cannot be equal."""
    sockets, each = _grid(record)
    limits.check("vertices", max(sockets, 1) * (1 + each), record.pointer)
    left = [each] * max(sockets, 1)
    for socket in _reserved(record, len(left), each, limits):
        left[socket] -= 1
    if not sum(left):
        raise GraphError("no core is left for jobs", pointer=record.pointer)
    if not sockets:
        return (Part("core", left[0]),)
    if min(left) == each:
        return (Part("socket", sockets, parts=(Part("core", each),)),)
    return tuple(Part("socket", first=n, parts=(Part("core", c),) if c else ()) for n, c in enumerate(left))


def _grid(record: Record) -> tuple[int, int]:
    """Return how many sockets, 0 for none, and how many cores in each: no more than CPUs are handed out."""
    sockets, each, cpus = (record.number(key, 1) for key in ("sockets", "cores", "cpus"))
    if sockets and each and (cpus is None or cpus >= sockets * each):
        return sockets, each
    if cpus is None:
        raise GraphError("a node must have cpus, or sockets and cores", pointer=record.pointer)
    if sockets and each:  # CPUs=8 for two sockets of 16 cores: Slurm hands out 8
        return (0, cpus) if cpus % sockets else (sockets, cpus // sockets)
    return 0, max(1, cpus // (record.number("threads", 1) or 1))


def _reserved(record: Record, sockets: int, each: int, limits: Limits) -> list[int]:
    """Return the socket of every core that is reserved: those listed, else as many as are said.

    Without a list Slurm takes the last core of the last socket first, then the last of the socket before, and on.
    """
    cores = sockets * each
    cpus = record.number("cpus") or cores
    threads = max(1, cpus // cores)
    if listed := record.said("specialized_cpus"):
        ids = expand_ids(listed, min(cores * threads, limits.vertices))
        if ids is None or max(ids) >= cores * threads:
            text = f'a list of CPUs reads like "0-1,31", all below {cores * threads}'
            raise GraphError(text, pointer=record.at("specialized_cpus"))
        return [core // each for core in {cpu // threads for cpu in ids}]
    effective = record.number("effective_cpus") or _in_tres(record) or cpus
    count = record.number("specialized_cores") or -(-(cpus - effective) // threads)
    return [sockets - 1 - taken % sockets for taken in range(min(max(count, 0), cores))]


def _in_tres(record: Record) -> int | None:
    """Return the CPUs for jobs as JSON before 23.02 has them: "cpu=29,mem=500G,billing=29"."""
    found = _CPUS.search(record.said("tres"))
    return int(found[1]) if found else None
