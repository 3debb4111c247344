"""Commands, attributes and trees of resources, as every dialect has them; and Fluxion's alternatives.

xor_slot   of its siblings of this type exactly one is taken, with all its slots
or_slot    all its siblings of this type have one count: so many slots are taken, each of any of them

Both become ordinary slots, with one forest of resources for each way to choose.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, islice, product
from math import comb
from typing import Any

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.attributes import (
    own_field,
    read_constraint,
    read_dependencies,
    read_licenses,
    read_names,
    requires,
    system_needs,
)
from rainbow.jobspec.batch import SHAPE, arrayed, read_script
from rainbow.jobspec.elastic import scattered
from rainbow.jobspec.quantities import about_units, read_count
from rainbow.jobspec.request import HIGHEST, LOWEST, OF_ITS_OWN, SLOT, Count, Need, Request, Resource, TaskSpec
from rainbow.jobspec.times import WANTED, seconds_of
from rainbow.jobspec.yaml_reader import as_number, step
from rainbow.text import VERSION, shortened, unread

VERSIONS = (1, 999, 9999)  # RFC 25's, and those with which RFC 14 marks a draft


def of_version(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning of a version that no jobspec has.

    >>> of_version({"version": 9}), of_version({"version": 1}), of_version({})
    (('/version 9 is unknown; the jobspec is read as version 1',), (), ())
    """
    version = document.get("version", 1)
    return () if version in VERSIONS else (f"{VERSION}{version} is unknown; the jobspec is read as version 1",)


SYSTEM = {"constraints", "cwd", "dependencies", "duration", "elastic", "environment", "job", "scatter"}
SYSTEM |= {"class", "requires", "service", "script", "array", "hold", "submitted_from"}
SYSTEM |= {"umask", "submit-host"}  # of the submit: each client says them, and sites keep the first
SYSTEM |= {"queue", "licenses", "clusters", "min_duration", "switches", "prefer", "contiguous", "exclusive"}
# what some policy reads: which one will have the job is not known here
FOR_POLICIES = {"master_queue", "pe", "project", "department", "reserve", "reservation", "deadline", "soft"}
FOR_POLICIES |= {"job_share", "tasks_at_once", "priority"}
FOR_ACCOUNTS = {"account", "bank", "qos"}  # who pays, and with which rights: read at submit
FOR_FILES = {"output", "error", "input"}
# what a resource manager reads that schedules for itself
FOR_SITES = {"comment", "requeue", "export", "export-file"}
WHO_PAYS = "accounts and their qualities of service; a server without them leaves this to the cluster"
LONGEST_WORD = 200


def read_resource(value: Mapping[str, Any], pointer: str) -> Resource:
    """Read one RFC 14 resource and all below it (the depth of the document is bounded already)."""
    count = read_count(value["count"], f"{pointer}/count") if "count" in value else Count()
    children = value.get("with", [])
    needs = requires(value["requires"], f"{pointer}/requires") if "requires" in value else ()
    inside = tuple(read_resource(child, f"{pointer}/with/{k}") for k, child in enumerate(children))
    kind, exclusive, label = value["type"], value.get("exclusive"), value.get("label", "")
    read = Resource(kind, count, value.get("unit", ""), bool(exclusive), label, needs, inside)
    return spread(replace(read, shared=exclusive is False), value, pointer)


CPU, CORE = "cpu", "core"


def spread(resource: Resource, value: Mapping[str, Any], pointer: str) -> Resource:
    """Return a resource with what it says of the vertices around it: `total`, `at_most`, `within`, `same`, `cpu`."""
    needs = tuple(own_field(need, resource.type, pointer) for need in resource.needs)
    for key in ("total", "at_most"):
        if key in value and not resource.is_slot:
            raise JobspecError(f"{key} is for slots, not for {resource.type:.40}", pointer=f"{pointer}/{key}")
    if "total" in value:
        if {"replicas", "count"} & value.keys():
            raise JobspecError(
                "total says how many slots there are, so leave count and replicas out", pointer=pointer
            )
        resource = replace(resource, count=read_count(value["total"], f"{pointer}/total"), total=True)
    return replace(
        resource,
        type=CORE if resource.type == CPU else resource.type,
        cpus=resource.type == CPU and "threads" not in value,
        at_most=tuple(sorted(value.get("at_most", {}).items())),
        within=value.get("within", ""),
        same=value.get("same", ""),
        needs=needs,
    )


def check_spread(forest: Sequence[Resource], pointer: str) -> None:
    """Refuse a total without vertices above it, and resources of the job without such beside them."""
    for tree in forest:
        for part in tree.walk():
            if part.is_slot and part.total and not any(part in above.children for above in tree.walk()):
                raise JobspecError("total needs the node that the slots are spread over above it", pointer=pointer)
            if part.within and part is not tree:
                raise JobspecError("within: job is for a resource at the top, beside a node", pointer=pointer)
    if any(tree.within for tree in forest) and all(tree.within for tree in forest):
        raise JobspecError("within: job needs the node beside it that has these resources", pointer=pointer)


def read_forests(values: Sequence[Mapping[str, Any]], pointer: str) -> tuple[tuple[Resource, ...], ...]:
    """Read a list of RFC 14 resources: one forest, or several where Fluxion's slots leave a choice."""
    return alternatives(tuple(read_resource(r, f"{pointer}/{k}") for k, r in enumerate(values)), pointer)


def labels(resources: tuple[Resource, ...]) -> list[str]:
    """List the labels of all slots, in order."""
    return [part.label for resource in resources for part in resource.walk() if part.is_slot]


def with_needs(resource: Resource, needs: Mapping[str, tuple[Need, ...]]) -> Resource:
    """Return the tree with needs added to its slots, by label."""
    children = tuple(with_needs(child, needs) for child in resource.children)
    own = needs.get(resource.label, ()) if resource.is_slot else ()
    return replace(resource, children=children, needs=resource.needs + own)


def read_command(value: Any, pointer: str) -> tuple[str, ...]:
    """Read argv; a command given as one text is split as a shell would, and never given to one."""
    if value is None:
        return ()
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as fault:
            raise JobspecError(f"cannot parse command: {fault}", pointer=pointer) from None
    else:
        words = list(value)
    if words and not words[0]:
        raise JobspecError("a command begins with the name of a program, got empty text", pointer=pointer)
    for word in words:
        if "\0" in word:
            raise JobspecError("a command cannot hold a NUL character", pointer=pointer)
    return tuple(words)


def read_counts(value: Any, pointer: str) -> dict[str, Any]:
    """Read how many processes a task starts: exactly one of per_slot, total, per_resource."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) <= {"per_slot", "total", "per_resource"}:
        raise JobspecError("count must have exactly one of per_slot, total and per_resource", pointer=pointer)
    key, number = next(iter(value.items()))
    if key == "per_resource":
        if not isinstance(number, Mapping) or not isinstance(number.get("type"), str):
            raise JobspecError("per_resource needs a type and a count", pointer=f"{pointer}/{key}")
        return {key: (number["type"], read_count(number.get("count"), f"{pointer}/{key}/count").min)}
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise JobspecError(f"{key} must be an integer >= 1", pointer=f"{pointer}/{key}")
    return {key: int(number)}


def read_environment(value: Any, pointer: str) -> dict[str, str | None]:
    """Read an environment; null takes a variable away (RFC 14)."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise JobspecError("environment must be a mapping", pointer=pointer)
    for key, item in value.items():
        if not key:
            raise JobspecError("the name of a variable is empty", pointer=f"{pointer}/")
        if not (item is None or isinstance(item, (str, int, float, bool))) or "=" in key or "\0" in f"{key}{item}":
            raise JobspecError(f"{key[:80]} cannot be a variable's name or value", pointer=f"{pointer}/{step(key)}")
    return {key: _variable(item) for key, item in value.items()}


def _variable(item: Any) -> str | None:
    """Write a variable's value: numbers as they are written, booleans as JSON writes them."""
    return item if item is None else str(item).lower() if isinstance(item, bool) else str(item)


def request_of(
    variants: tuple[tuple[Resource, ...], ...], tasks: tuple[TaskSpec, ...], attributes: Any, at: str, **rest: Any
) -> Request:
    """Make a Request of what a dialect read, adding what `attributes` (found at pointer `at`) say."""
    attributes = attributes or {}
    system = _mapping(attributes.get("system"), f"{at}/system")
    job = system.get("job")
    needs = system_needs(system.get("requires"), f"{at}/system/requires")
    variants = tuple(tuple(_needing(tree, needs) for tree in forest) for forest in variants) if needs else variants
    _check_asked(variants, rest.get("asked_at", "/resources"))
    for forest in variants:
        check_spread(forest, rest.get("asked_at", "/resources"))
    rest.pop("asked_at", None)
    of_slurm = _mapping(_mapping(attributes.get("site"), f"{at}/site").get("slurm"), f"{at}/site/slurm")
    written = of_slurm.get("partition")
    queue = system.get("queue") or (str(written).split(",") if written else None)
    warnings = (*rest.pop("warnings", ()), *_unread(system, f"{at}/system"), *about_units(variants))
    warnings = (*warnings, *_of_sites(attributes.get("site"), f"{at}/site"))
    name = rest.pop("name", "") or (job.get("name", "") if isinstance(job, Mapping) else "")
    constraints, dependencies = system.get("constraints"), system.get("dependencies")
    _check_priority(system.get("priority"), f"{at}/system/priority")
    request = Request(
        variants,
        tasks,
        name=str(name)[:200],
        duration=_duration(system.get("duration"), f"{at}/system/duration"),
        cwd=_folder(system, "cwd", at),
        submitted_from=_folder(system, "submitted_from", at),
        environment=read_environment(system.get("environment"), f"{at}/system/environment"),
        constraint=None if constraints in (None, {}) else read_constraint(constraints, f"{at}/system/constraints"),
        dependencies=() if dependencies is None else read_dependencies(dependencies, f"{at}/system/dependencies"),
        job_class=_word(system.get("class"), f"{at}/system/class", "class is the name of a class"),
        service=_service(system.get("service"), f"{at}/system/service"),
        script=read_script(system.get("script"), f"{at}/system/script"),
        held=_flag(system.get("hold"), f"{at}/system/hold"),
        queues=read_names(queue, f"{at}/system/queue"),
        licenses=read_licenses(system.get("licenses"), f"{at}/system/licenses"),
        clusters=read_names(system.get("clusters"), f"{at}/system/clusters"),
        shortest=_duration(system.get("min_duration"), f"{at}/system/min_duration"),
        account=str(of_slurm.get("account", "")),
        qos=str(of_slurm.get("qos", "")),
        reservation=str(of_slurm.get("reservation", "")),
        parameters=_parameters(attributes, at),
        attributes=attributes,
        warnings=warnings,
        **rest,
    )
    _check_script(request, f"{at}/system/script")
    return arrayed(scattered(request, system, f"{at}/system"), system, f"{at}/system")


def _check_script(request: Request, at: str) -> None:
    if request.script and len(request.tasks) != 1:
        raise JobspecError(f"a script is the job's only task, got {len(request.tasks)} tasks", pointer=at)


def _folder(system: Mapping[str, Any], key: str, at: str) -> str:
    folder = system.get(key) or ""
    if not isinstance(folder, str) or "\0" in folder:
        raise JobspecError(f"{key} must be text", pointer=f"{at}/system/{key}")
    return folder


def _flag(value: Any, pointer: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise JobspecError(f"hold must be true or false, got {value!r:.40}", pointer=pointer)
    return bool(value)


def _of_sites(site: Any, at: str) -> Iterator[str]:
    """Yield what only resource managers of one kind read; refuse what is no mapping of mappings."""
    if site is None:
        return
    if not isinstance(site, Mapping) or not all(isinstance(options, Mapping) for options in site.values()):
        raise JobspecError("site must be {kind of resource manager: {option: value}}", pointer=at)
    for kind, options in site.items():
        rights = [str(name) for name in options if kind == "slurm" and name in FOR_ACCOUNTS]
        others = [str(name) for name in options if name not in {*SHAPE, *rights}]  # resources say the shape, too
        for names, read in ((rights, WHO_PAYS), (others, f"only clusters of kind {kind!s:.40} read this")):
            if names:
                yield f"{at}/{step(kind)} ({', '.join(names):.200}): {read}"


def _needing(tree: Resource, needs: tuple[Need, ...]) -> Resource:
    """Give needs to the outermost slots of a tree; without a slot, to what stands at its top."""
    if tree.is_slot or not any(part.is_slot for part in tree.walk()):
        return replace(tree, needs=tree.needs + needs)
    inside = (part if not labels((part,)) else _needing(part, needs) for part in tree.children)
    return replace(tree, children=tuple(inside))


def _check_asked(variants: tuple[tuple[Resource, ...], ...], pointer: str) -> None:
    """Refuse a jobspec that asks for nothing: every cluster would match, and its tasks would run nowhere."""
    for forest in variants:
        if all(part.is_slot and not part.needs for tree in forest for part in tree.walk()):
            text = "the jobspec asks for nothing; say what a slot takes, as with: [{type: core, count: 1}]"
            raise JobspecError(text, pointer=pointer)


def _unread(system: Mapping[str, Any], at: str) -> Iterator[str]:
    """Yield what is kept with the job and not acted on here: nothing is silently ignored."""
    others = (key for key in system if key not in SYSTEM)
    yield from shortened(others, lambda key: _of_other(f"{at}/{step(key)}", key))


def _of_other(at: str, key: str) -> str:
    if key in FOR_POLICIES:
        return f"{at} is read by some scheduling policies only; the cluster's policy may ignore it"
    if key in FOR_ACCOUNTS:
        return f"{at}: {WHO_PAYS}"
    if key in FOR_FILES:
        return f"{at}: only the executors local and slurm read this"
    if key in FOR_SITES:
        return f"{at}: only resource managers such as Slurm read this"
    return unread(at, key, sorted(SYSTEM | FOR_ACCOUNTS | FOR_POLICIES | FOR_FILES | FOR_SITES))


def _mapping(value: Any, pointer: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise JobspecError("a mapping is wanted here", pointer=pointer)


def _duration(value: Any, pointer: str) -> float:
    if value is None:
        return 0.0
    result = seconds_of(value.strip()) if isinstance(value, str) else value
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not 0 <= result < math.inf:
        raise JobspecError(f"duration is a number of {WANTED}; 0 for no limit", pointer=pointer)
    return float(result)


def _check_priority(value: Any, pointer: str) -> None:
    if value is not None and (type(value) is not int or not LOWEST <= value <= HIGHEST):
        text = f"priority must be a whole number from {LOWEST} to {HIGHEST}, got {value!r:.40}"
        raise JobspecError(text, pointer=pointer)


def _word(value: Any, pointer: str, text: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_WORD or "\0" in value:
        raise JobspecError(text, pointer=pointer)
    return value


def _service(value: Any, pointer: str) -> str:
    """Read the name of the service whose instances the slots are; true: it has none, and is apart from all others."""
    if isinstance(value, bool):
        return OF_ITS_OWN if value else ""
    return _word(value, pointer, "service is true, false or a name")


def _parameters(attributes: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Collect attributes.parameter.*; flat scalars directly in attributes count too."""
    scalar = (str, int, float, bool)
    options = _mapping(attributes.get("parameter"), f"{at}/parameter")
    flat = {key: as_number(value) for key, value in attributes.items() if isinstance(value, scalar)}
    return {**flat, **{key: as_number(value) for key, value in options.items() if isinstance(value, scalar)}}


# ── alternatives ──

XOR, OR = "xor_slot", "or_slot"
MOST_VARIANTS = 64
Forest = tuple[Resource, ...]


def alternatives(siblings: Forest, pointer: str) -> tuple[Forest, ...]:
    """Return the forests of which any one will do, the first choice of everything first.

    Raises JobspecError where siblings of or_slot differ in their counts, LimitError for more than 64 ways.

    >>> small, large = (Resource(XOR, children=(Resource("core", Count(n, n)),)) for n in (4, 8))
    >>> [forest[0].children[0].count.min for forest in alternatives((small, large), "/resources")]
    [4, 8]
    """
    if not any(part.type in (XOR, OR) for sibling in siblings for part in sibling.walk()):
        return (siblings,)
    fixed = [_ways(r, pointer) for r in siblings if r.type not in (XOR, OR)]
    exclusive = [way for r in siblings if r.type == XOR for way in _ways(r, pointer)]
    mixed = _mixed([r for r in siblings if r.type == OR], pointer)
    return _bounded(
        (
            tuple(part for parts in picked for part in parts)
            for picked in product(*fixed, *([exclusive] if exclusive else []), *([mixed] if mixed else []))
        ),
        pointer,
    )


def _ways(r: Resource, pointer: str) -> list[Forest]:
    """Return a resource once for each way to choose below it."""
    type_ = SLOT if r.type in (XOR, OR) else r.type
    return [(replace(r, type=type_, children=inside),) for inside in alternatives(r.children, pointer)]


def _mixed(slots: Sequence[Resource], pointer: str) -> list[Forest]:
    """Return the ways to make up a number of slots of some kinds."""
    if not slots:
        return []
    if any(slot.count != slots[0].count for slot in slots):
        raise JobspecError(f"{OR}s beside each other must have one count: so many slots in all", pointer=pointer)
    kinds = [way[0] for slot in slots for way in _ways(slot, pointer)]
    if len(kinds) == 1:
        return [(kinds[0],)]
    many = slots[0].count.min
    if max(many, len(kinds)) > MOST_VARIANTS or comb(many + len(kinds) - 1, many) > MOST_VARIANTS:
        raise _too_many(pointer)
    picks = combinations_with_replacement(range(len(kinds)), many)
    return [tuple(replace(kinds[k], count=Count(n, n)) for k, n in Counter(pick).items()) for pick in picks]


def _bounded(forests: Iterable[Forest], pointer: str) -> tuple[Forest, ...]:
    result = tuple(islice(forests, MOST_VARIANTS + 1))
    if len(result) > MOST_VARIANTS:
        raise _too_many(pointer)
    return result


def _too_many(pointer: str) -> LimitError:
    text = f"more than {MOST_VARIANTS} ways to choose among alternatives"
    return LimitError(text, pointer=pointer, limit="variants")
