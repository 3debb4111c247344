"""A constraint (RFC 31) → options of sbatch: --constraint, --partition, --nodelist, --exclude and facts of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.hostlist import expand_hosts

Options = dict[str, str]  # "" is an option without a value
MIB = 2**20
MOST_HOSTS = 100_000


class NotCarriedError(JobspecError):
    """What cannot be said to Slurm, in words."""


def constraint_options(
    constraint: Mapping[str, Any] | None, nodes: int | None, hosts: Sequence[str] | None, *, named: bool
) -> Options:
    """Say an RFC 31 constraint with --constraint, --partition, --nodelist and --exclude.

    `hosts` are the site's; `named`: the site has its own list of nodes, of which matching reads the constraint.
    """
    features, partitions, among, never = list[Any](), list[str](), list[set[str]](), set[str]()
    options, words = _of_nodes(constraint)
    for part in _conjuncts(constraint):
        [(operator, values)] = part.items()
        if operator in OF_NODES:
            continue
        if results := _partitions(part):
            partitions = [name for name in results if not partitions or name in partitions]
        elif operator == "hostlist":
            among += [] if named else [_hosts(values)]
        elif operator == "not" and "hostlist" in values[0]:
            never |= _hosts(values[0]["hostlist"])
        else:
            features.append(part)
    words = [*(_feature(part, nested=len(features) > 1) for part in features), *words]
    options |= {"constraint": "&".join(words)} if words else {}
    if partitions:
        options["partition"] = ",".join(partitions)
    return options | _named_hosts(set.intersection(*among) if among else None, never, nodes, hosts)


def _named_hosts(among: set[str] | None, never: set[str], nodes: int | None, hosts: Sequence[str] | None) -> Options:
    """Name the hosts that a job must have all, and those that it must not have."""
    options: Options = {}
    if among is not None:
        if nodes == len(among - never):
            options["nodelist"] = ",".join(sorted(among - never))
        elif hosts is None:
            raise NotCarriedError("hosts to choose among cannot be said to Slurm (--nodelist takes all of them)")
        else:
            never = never | (set(hosts) - among)
    return options | ({"exclude": ",".join(sorted(never))} if never else {})


FACTS = {  # what a node must have → the option that asks for it
    "ssd": "tmp",
    "cpu": "mincpus",
    "core": "mincpus",
    "socket": "sockets-per-node",
    "socket/core": "cores-per-socket",
    "threads": "threads-per-core",
}


OF_NODES = frozenset({"at_least", "counts", "same"})


def _of_nodes(constraint: Mapping[str, Any] | None) -> tuple[Options, list[str]]:
    """Return the options for facts of nodes, and the words of --constraint for what the chosen ones have together."""
    options, words = Options(), list[str]()
    for operator, values in (pair for part in _conjuncts(constraint) for pair in part.items()):
        named = [text.rpartition("=")[::2] for text in values] if operator in ("at_least", "counts") else []
        if operator == "counts":
            words.append(f"[{'&'.join(f'{name}*{count}' for name, count in named)}]")
        elif operator == "same":
            words.append(f"[{'|'.join(values)}]")
        elif operator == "at_least":
            for fact, least in named:
                if fact in FACTS:
                    options[FACTS[fact]] = f"{math.ceil(int(least) / MIB)}M" if fact == "ssd" else least
    return options, words


def _conjuncts(constraint: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield what must all be true; several properties of one list are several."""
    for operator, values in (constraint or {}).items():
        if operator == "and":
            for value in values:
                yield from _conjuncts(value)
        elif operator == "properties":
            yield from ({operator: [value]} for value in values)
        else:
            yield {operator: values}


def _partitions(part: Mapping[str, Any]) -> list[str]:
    """Return the partitions that a part names, one or alternatives; none if it says anything else."""
    parts = part.get("or", [part])
    texts = [value for each in parts for value in (each.get("properties") or [""])]
    named = [text.removeprefix("partition=") for text in texts if text.startswith("partition=")]
    return named if len(named) == len(parts) == len(texts) else []


def _hosts(values: Sequence[str]) -> set[str]:
    return {host for text in values for host in expand_hosts(text, MOST_HOSTS) or ()}


def _feature(part: Mapping[str, Any], *, nested: bool) -> str:
    [(operator, values)] = part.items()
    if operator == "properties":
        if refused := [text for text in values if text.startswith(("^", "partition="))]:
            raise NotCarriedError(f"{refused[0]:.60} in a constraint: Slurm cannot say what a node must not have")
        return "&".join(values)
    if operator not in ("and", "or"):
        raise NotCarriedError(f"the constraint {operator} cannot be said to Slurm")
    said = ("|" if operator == "or" else "&").join(_feature(each, nested=len(values) > 1) for each in values)
    return f"({said})" if nested and len(values) > 1 else said
