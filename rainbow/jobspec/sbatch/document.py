"""What a call of sbatch asks for → a jobspec.

`resources` say what matching needs; what they cannot say exactly stays in `attributes.site.slurm` as it was written,
so that a Slurm cluster gets it unchanged. The script starts once, over all slots of the job (`count: {total: 1}`).
"""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.batch import read_array
from rainbow.jobspec.request import LOWEST
from rainbow.jobspec.sbatch.features import read_features
from rainbow.jobspec.sbatch.options import OPTIONS, GivenOptions, Place
from rainbow.jobspec.sbatch.shape import Shape
from rainbow.jobspec.times import moment, seconds_of

Document = dict[str, Any]
NICE = 100  # of --nice without a number
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_AFTER = ("after", "afterany", "afterok", "afternotok")
_WHERE = {"constraint", "nodelist", "exclude"}
PRIVATE = ("RAINBOW_", "SLURM_", "SBATCH_", "SALLOC_", "SRUN_")  # of a caller's environment: never exported by ALL


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Who calls: the time there (with its zone, or local), the working directory, the environment and the umask."""

    now: datetime
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    umask: int | None = None


def jobspec_of_call(call: GivenOptions, caller: Surroundings) -> tuple[Document, list[str]]:
    """Return the jobspec of a call, and in words what it carries in another form; JobspecError if it cannot.

    >>> from datetime import UTC
    >>> from rainbow.jobspec.sbatch.script import read_call
    >>> call = read_call("#!/bin/sh\\nhostname\\n", ["-n", "4", "-c", "2"])
    >>> jobspec_of_call(call, Surroundings(datetime(2030, 1, 1, tzinfo=UTC)))[0]["resources"]
    {'job': {'type': 'cpu', 'count': 2, 'replicas': 4}}
    """
    notes = list(call.notes)
    trees = [Shape(options, notes) for options in call.components]
    names = ["job", *(f"job-{k}" for k in range(1, len(trees)))]
    system, constraints = _system(call, caller, notes), trees[0].constraint
    sites = [{**tree.kept, **_carried(tree.options)} for tree in trees]
    if system.get("duration") == 0:  # to a jobspec that is what the cluster lets it have, to sbatch more
        sites[0]["time"] = "UNLIMITED"
    for tree, site in zip(trees[1:], sites[1:], strict=True):
        site |= _of_its_own(tree.options, call.options, notes)
    system |= {"constraints": constraints} if constraints else {}
    if len(trees) > 1 and "array" in system:
        raise JobspecError("an array cannot be a heterogeneous job (hetjob)")
    slurm: Document = {**sites[0], **({"hetjob": sites[1:]} if len(sites) > 1 else {})}
    task: Document = {"command": list(call.arguments)}  # without a script it starts in every slot
    task = {"command": [call.name, *call.arguments], "count": {"total": 1}} if call.script else task
    task |= {"resources": "job"} if len(trees) == 1 else {}
    name = call.options.get("job-name", call.name)
    document: Document = {
        "version": 1,
        **({"name": name} if name else {}),
        "resources": dict(_named(names, trees)),
        "tasks": [task],
        "attributes": {"system": system, **({"site": {"slurm": slurm}} if slurm else {})},
    }
    return document, notes


def _named(names: list[str], trees: list[Shape]) -> Iterator[tuple[str, Document]]:
    """Yield the resources of all components by name."""
    for called, tree in zip(names, trees, strict=True):
        for name, resource in tree.resources:
            yield called if name == "job" else name if called == "job" else f"{called}-{name}", resource


def _of_its_own(options: Mapping[str, str], first: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Return what a later component says of its own that a jobspec says once for all."""
    once = {name for name, option in OPTIONS.items() if option.place is Place.SYSTEM} | _WHERE
    result = {name: value for name, value in options.items() if name in once and first.get(name) != value}
    notes += [f"--{name}={value} of a later component: sent to the site as written" for name, value in result.items()]
    return result


def _carried(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that only the site reads, in their order."""
    known = {name: OPTIONS[name].place if name in OPTIONS else Place.SITE for name in options}
    return {name: options[name] for name in options if known[name] is Place.SITE}


# ── attributes.system ──


def _system(call: GivenOptions, caller: Surroundings, notes: list[str]) -> Document:
    options = call.options
    system: Document = {"script": call.script}  # empty texts are left out in the end
    if "time" in options:
        system["duration"] = seconds(options["time"])
    if "chdir" in options:
        system["cwd"] = posixpath.join(caller.cwd, options["chdir"])
    else:
        system["submitted_from"] = caller.cwd
    if caller.umask is not None:
        system["umask"] = f"{caller.umask:04o}"
    for name in ("output", "error", "input", "comment", "export-file"):
        if name in options:
            system[name] = options[name]
    if "array" in options:
        read_array(options["array"], "")
        system["array"] = options["array"]
    if "hold" in options:
        system["hold"] = True
    if "requeue" in options or "no-requeue" in options:
        system["requeue"] = "requeue" in options
    system |= _of_sites(call)
    system |= _wishes(options, notes)
    if "deadline" in options:
        system["deadline"] = _moment("deadline", options["deadline"], caller)
    system |= _priority(options, notes) | _environment(options, caller, notes)
    dependencies = _dependencies(options, call.name, caller, notes)
    return {key: value for key, value in system.items() if value != ""} | (
        {"dependencies": dependencies} if dependencies else {}
    )


def _of_sites(call: GivenOptions) -> Document:
    """Return what sites decide by: queue, licenses, the least duration, the clusters that may have the job."""
    options, system = call.options, Document()
    if "partition" in options:
        names = [name for name in options["partition"].split(",") if name]
        system["queue"] = names[0] if len(names) == 1 else names
    if "licenses" in options:
        system["licenses"] = dict(_licenses(options["licenses"]))
    if "time-min" in options:
        system["min_duration"] = seconds(options["time-min"])
    if names := [name for name in call.clusters.split(",") if name and name != "all"]:
        system["clusters"] = names
    return system


def _licenses(text: str) -> Iterator[tuple[str, int]]:
    """Yield what --licenses lists: name[@server][:count]."""
    for part in filter(None, re.split("[,;]", text)):
        name, _, count = part.partition(":")
        if not name or (count and not (count.isdecimal() and 0 < int(count[:10]) < 10**9)):
            raise JobspecError(f"--licenses must be names with counts such as matlab:2, got {text!r:.60}")
        yield name.partition("@")[0], int(count or 1)


def _wishes(options: Mapping[str, str], notes: list[str]) -> Document:
    """Return what is wished for and makes no cluster refuse the job."""
    result: Document = {}
    if "switches" in options:
        count, _, wait = options["switches"].partition("@")
        if not count.isdecimal():
            raise JobspecError(f"--switches must be a count such as 1 or 1@10:00, got {options['switches']!r:.60}")
        result["switches"] = {"count": int(count), **({"wait": seconds(wait)} if wait else {})}
    if "prefer" in options and (features := read_features(options["prefer"])):
        result["prefer"] = features
    if "contiguous" in options:
        result["contiguous"] = True
    if options.get("exclusive"):
        result["exclusive"] = options["exclusive"]
    notes += [f"--{name}={_shown(value)}: a wish; no cluster is refused for it" for name, value in result.items()]
    return result


def _shown(value: object) -> str:
    return value if isinstance(value, str) else "yes" if value is True else json.dumps(value)


def seconds(text: str) -> float:
    """Read a time limit; what has no unit is one of Slurm's forms, which counts in minutes, rounded up."""
    count = seconds_of(text, plain=60)
    if count is None:
        raise JobspecError(f"--time must be minutes, MM:SS, HH:MM:SS or D-HH[:MM[:SS]], got {text!r:.60}")
    if text[-1].isdecimal() or text[-1] == "-":
        count = math.ceil(count / 60) * 60
    return int(count) if count == int(count) else count


def _moment(name: str, text: str, caller: Surroundings) -> float:
    result = moment(text, caller.now)
    if result is None:
        raise JobspecError(f"--{name} must be a time such as 16:00, now+1hour or 2030-01-31T12:00, got {text!r:.60}")
    return result


def _priority(options: Mapping[str, str], notes: list[str]) -> Document:
    if "nice" not in options:
        return {}
    text = options["nice"] or str(NICE)
    if not text.removeprefix("-").isdecimal() or len(text) > 11:
        raise JobspecError(f"--nice must be a whole number, got {text!r:.60}")
    nice = int(text)
    if nice < 0 or -nice < LOWEST:
        notes.append(f"--nice={text}: carried as priority {max(min(-nice, 0), LOWEST)}, the nearest there is")
    return {"priority": max(min(-nice, 0), LOWEST)}


def _environment(options: Mapping[str, str], caller: Surroundings, notes: list[str]) -> Document:
    """Return the variables that --export names. Without it none are sent: a caller's environment may hold secrets."""
    if "export" not in options:
        return {}
    if options["export"].upper() in ("NONE", "NIL"):
        return {"export": options["export"].upper()}
    result, sent = dict[str, str](), dict[str, str]()
    for part in options["export"].split(","):
        name, equals, value = part.partition("=")
        if part == "ALL":
            sent = {key: one for key, one in caller.environment.items() if not key.startswith(PRIVATE)}
            notes.append(
                f"--export=ALL: sent {len(sent)} variables of your environment, none of {', '.join(PRIVATE)}"
            )
        elif not _VARIABLE.fullmatch(name):
            raise JobspecError(f"--export must be ALL, NONE or variables such as A,B=1, got {part!r:.60}")
        elif equals:
            result[name] = value
        elif name in caller.environment:
            result[name] = caller.environment[name]
        else:
            notes.append(f"--export={name}: {name} is not set here")
    return {"environment": {**sent, **result}}


def _dependencies(options: Mapping[str, str], called: str, caller: Surroundings, notes: list[str]) -> list[Document]:
    result: list[Document] = []
    if "begin" in options:
        at = _moment("begin", options["begin"], caller)
        result.append({"scheme": "begin-time", "value": str(int(at) if at == int(at) else at)})
    text = options.get("dependency", "")
    if "?" in text:
        raise JobspecError('--dependency: "?" (any of several) cannot be carried; Rainbow waits for all of them')
    for part in filter(None, text.split(",")):
        result += _dependency(part, options, called, notes)
    return result


def _dependency(part: str, options: Mapping[str, str], called: str, notes: list[str]) -> list[Document]:
    kind, _, rest = part.partition(":")
    if part == "singleton":
        name = options.get("job-name", "") or called
        notes.append(f"--dependency=singleton: waits for your earlier jobs that say singleton of the name {name}")
        return [{"scheme": "string", "value": f"singleton {name}", "type": "inout", "scope": "user"}]
    ids = [one for one in rest.split(":") if one]
    if kind == "aftercorr":
        notes.append(f"--dependency={part}: every element waits until all of job {' and '.join(ids)} has completed")
        kind = "afterok"
    if kind not in _AFTER or not ids:
        raise JobspecError(f"--dependency must be {', '.join(_AFTER)} with :JOB, or singleton, got {part!r:.60}")
    if any("+" in one for one in ids):
        raise JobspecError(f"--dependency={part}: a delay (+MINUTES) cannot be carried; use --begin")
    return [{"scheme": kind, "value": one} for one in ids]
