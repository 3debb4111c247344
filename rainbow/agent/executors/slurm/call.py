"""One call of sbatch: its words, the script on its standard input, and the variables it is started with.

A command is started by our own program on every share (shared_folder.py). A script of the user's goes over as it is:
what Rainbow has acted on itself (arrays, dependencies, begin times, holds) is overruled by words, which are stronger.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rainbow.agent import bare
from rainbow.agent.executors.local import allowed
from rainbow.agent.executors.run import Run, workers_of
from rainbow.agent.executors.shared_folder import GIVEN, key_of
from rainbow.agent.executors.slurm.accounts import SiteAccount, SiteBounds
from rainbow.errors import RainbowError
from rainbow.jobspec.sbatch import GivenOptions, read_call
from rainbow.jobspec.sbatch.request import (
    MIB,
    PLAIN_MEMORY,
    Carried,
    NotCarriedError,
    Options,
    one_line,
    time_limit,
)

INDEX = "RAINBOW_ARRAY_INDEX"
# with these sbatch would not come back with a job
OF_THE_CALL = re.compile(r"^#SBATCH\s(?:.*\s)?(--wait|-W|--test-only)\b", re.M)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where calls are made: the desk's folder, what tasks may see, and the account whose job it is, None: our own.

    `bounds`: what the site lets jobs ask for.
    """

    desk: Path
    environment: Mapping[str, str]
    account: SiteAccount | None = None
    bounds: SiteBounds = field(default_factory=SiteBounds)
    binds: bool = False  # tasks are bound to what Slurm gives them

    @property
    def visible(self) -> dict[str, str]:
        """What a job may see of the agent's environment, as its account."""
        return {**allowed(self.environment), **(self.account.environment if self.account else {})}


class Element(NamedTuple):
    """A run's place in an array: the key of the list of all of its runs, and its number."""

    group: str
    number: str


def umask_of(run: Run) -> int:
    """Return the umask with which a run was submitted; -1: it is not known.

    >>> umask_of(Run(("t", 1), "j", (), request={"system": {"umask": "0077"}}))
    63
    """
    said = str((run.request or {}).get("system", {}).get("umask") or "")
    return int(said, 8) if re.fullmatch("0?[0-7]{3}", said) else -1


def folder_of(run: Run, place: CallPlace) -> str:
    """Return where a job works: where it was asked for, else at home."""
    there = run.cwd
    home = place.visible.get("HOME") or ""
    return there or (home if os.path.isdir(home) else "/tmp")  # noqa: S108 - of the site


@dataclass(frozen=True, slots=True)
class SbatchCall:
    """What sbatch is called with. `environment`: of the job, None: none, which its starter builds itself.

    `release`: the script asks to be held, which Rainbow has done already.
    """

    words: tuple[str, ...]
    script: str
    environment: Mapping[str, str] | None = None
    release: bool = False
    folder: str = ""  # where sbatch is started, with this umask: a job sees both
    umask: int = -1


def script_of(run: Run) -> str:
    """Return the text of a run's script; empty: it is a command."""
    return str((run.request or {}).get("script") or "")


def call_of(
    run: Run,
    request: Carried,
    mark: str,
    shares: int,
    place: CallPlace,
    element: Element | None = None,
    ids: str = "",
) -> SbatchCall:
    """Return the call for a run, or for an array of these ids; NotCarriedError names what cannot be handed over."""
    options, later = _options(run, request, mark, place, element), [*request.components[1:]]
    if element:
        options["array"] = ids
    script = script_of(run)
    components = _directives(script) if script else ()
    said = [*components, *[{} for _ in request.components]]
    options, *later = (place.bounds.bounded(*pair) for pair in zip([options, *later], said, strict=False))
    options = place.account.bounded(options) if place.account else options
    if not script and place.account:
        script = _as_script(run, shares, binds=place.binds)
    if not script:
        options["export"] = "NIL"  # a command gets its environment through the desk
        words, starter = _words(options, *later), _starter(run, shares, len(request.components), place, element)
        return SbatchCall(words, starter, folder=options["chdir"], umask=umask_of(run))
    inputs = components[0] if components else {}
    if index := run.environment.get(INDEX):
        options["array"] = ids or index
    elif "array" in inputs:
        raise NotCarriedError("its script asks for an array: submit it with rainbow submit, or write system.array")
    if len(components) > len(request.components):
        raise NotCarriedError(
            f"its script asks for {len(components)} components (hetjob), the jobspec for {len(request.components)}: "
            "submit it with rainbow submit"
        )
    if "begin" in inputs:
        options.setdefault("begin", "now")
    arguments = [str(word) for word in (run.request or {}).get("arguments") or ()]
    extra = ["/dev/stdin", *arguments] if arguments else []
    options |= {"dependency": ""} if "dependency" in inputs else {}
    where = (options["chdir"], umask_of(run))
    return SbatchCall((*_words(options, *later), *extra), script, _exported(run, place), "hold" in inputs, *where)


def may_rerun(run: Run) -> bool | None:
    """Return whether a job says that it may run twice, or must not; None: it says nothing of that."""
    request = run.request or {}
    said = dict((request.get("site") or {}).get("slurm") or {})
    if isinstance(requeue := (request.get("system") or {}).get("requeue"), bool):
        said["requeue" if requeue else "no-requeue"] = True
    with contextlib.suppress(NotCarriedError):
        said = {**(_directives(script_of(run)) or ({},))[0], **said} if script_of(run) else said
    if said.get("no-requeue", False) is not False:
        return False
    return True if said.get("requeue", False) is not False else None


def _words(*components: Options) -> tuple[str, ...]:
    return tuple(GivenOptions(components).argv())


def placed(run: Run, *, pinned: bool) -> Carried:
    """Return the options for what a policy of ours has placed: as much on every node as the node that holds most."""
    workers = workers_of(run)
    amounts = [run.placement[worker] for worker in workers]
    most = {kind: max((each.get(kind, 0) for each in amounts), default=0) for kind in ("core", "gpu", "memory")}
    options: Options = {"nodes": str(len(workers)), "ntasks-per-node": "1"} if workers else {"ntasks": "1"}
    if most["core"]:
        # a policy counts cores; for Slurm a processor is a hardware thread
        options |= {"cpus-per-task": str(most["core"]), "threads-per-core": "1"}
    if most["gpu"]:
        options["gpus-per-node"] = str(most["gpu"])
    if most["memory"]:
        options["mem"] = f"{math.ceil(most['memory'] * (1 if 'memory' in run.units else PLAIN_MEMORY) / MIB)}M"
    if workers and pinned:
        options["nodelist"] = ",".join(workers)
    return Carried(({**options, **time_limit(run.duration)},), max(1, len(workers)))


def _options(run: Run, request: Carried, mark: str, place: CallPlace, element: Element | None) -> Options:
    options, system = dict(request.options), (run.request or {}).get("system") or {}
    options.setdefault("job-name", "rainbow")
    options["comment"] = f"{one_line(system.get('comment'))} {mark}".strip()
    options.setdefault("open-mode", "append")
    options["chdir"] = folder_of(run, place)
    options["output"] = output_of(run, place, element)
    for name in ("error", "input"):
        if system.get(name):
            options[name] = one_line(system[name])
    return options


def output_of(run: Run, place: CallPlace, element: Element | None = None) -> str:
    """Return the file that a job writes to, as sbatch takes it: where it was asked for, else beside its work."""
    query = one_line((run.request or {}).get("system", {}).get("output"))
    if not query and not place.account and not (run.request and run.cwd and os.path.isdir(run.cwd)):
        return str(place.desk / "outputs" / (f"{element.group}-%a" if element else key_of(run.id)))
    index = run.environment.get(INDEX)
    path = query or ("rainbow-%A_%a.out" if index or element else "rainbow-%j.out")
    if element or (script_of(run) and index):  # such a job is an element in Slurm, too
        return path
    return path.replace("%A", "%j").replace("%a", index or "%a")


def errors_of(run: Run) -> str:
    """Return the file of a job's standard error, as sbatch takes it; empty: it goes with the rest."""
    return one_line((run.request or {}).get("system", {}).get("error")) if run.request else ""


def _exported(run: Run, place: CallPlace) -> dict[str, str]:
    """Return the environment of a script: what the job says, and of the agent's own only what tasks may see."""
    number = run.variables.get("RAINBOW_JOB_ID")
    if INDEX in run.environment:  # elements have one environment: which one it is Slurm says
        number = run.variables.get("SLURM_ARRAY_JOB_ID", number)
    own = {"RAINBOW_JOB": run.job, "RAINBOW_JOB_ID": number, "RAINBOW_TASK": run.id[0], **run.environment}
    if INDEX in own:
        del own["RAINBOW_TASK"], own[INDEX]
    options = {**place.visible, **own}
    # what begins with SLURM_ Slurm says itself
    return {name: value for name, value in options.items() if value is not None and not name.startswith("SLURM_")}


def _directives(script: str) -> Sequence[Mapping[str, str]]:
    """Return the options that a script asks for itself, of each component."""
    if result := OF_THE_CALL.search(script):
        raise NotCarriedError(f"its script asks for {result[1]}, which is about the call and not the job")
    try:
        return read_call(script).components
    except RainbowError as fault:
        raise NotCarriedError(f"its script: {fault}") from fault


SAID = f'export {GIVEN}="$(scontrol -d -o show job $SLURM_JOB_ID; scontrol -o show node $SLURMD_NODENAME)"'


def _as_script(run: Run, shares: int, *, binds: bool) -> str:
    """Return a script that starts a command: our own program would need a folder that its account can write to."""
    words, count = shlex.join(run.command), run.processes
    lines = ["#!/bin/sh", f"export RAINBOW_TASK_COUNT={count}", "export RAINBOW_TASK_RANK=0", f"set -- {words}"]
    if binds:  # by our program, where the account may read it
        program = shlex.join(bare.command("shared_folder", ""))
        python, ours = (shlex.quote(str(path)) for path in bare.files())
        unread = f'echo "rainbow: not bound to its cores: $(id -un) cannot read" {python} or {ours} >&2'
        lines += [SAID, f"""if [ -x {python} ] && [ -r {ours} ]; then set -- {program} "$@"; else {unread}; fi"""]
    if shares > 1:
        each = """sh -c 'RAINBOW_TASK_RANK=$SLURM_PROCID RAINBOW_WORKER=$SLURMD_NODENAME exec "$@"' sh"""
        return "\n".join([*lines, f'exec srun --ntasks={shares} --kill-on-bad-exit=0 {each} "$@"', ""])
    return "\n".join([*lines, "export RAINBOW_WORKER=$SLURMD_NODENAME", 'exec "$@"', ""])


def _starter(run: Run, shares: int, components: int, place: CallPlace, element: Element | None) -> str:
    words = bare.command("shared_folder", str(place.desk), key_of(run.id), str(shares))
    if shares > 1:
        spread = f"--het-group=0-{components - 1}" if components > 1 else f"--ntasks={shares}"
        words = ["srun", spread, "--kill-on-bad-exit=0", "--export=ALL", *words]
    lines = [f"export {name}={shlex.quote(value)}" for name, value in place.visible.items()]
    if place.binds:
        lines.append(SAID)
    called = shlex.join(words)
    if element:
        listed = shlex.quote(str(place.desk / "lists" / element.group))
        lines.append(f"""key=$(sed -n "s/^$SLURM_ARRAY_TASK_ID //p" {listed})""")
        called = called.replace(key_of(run.id), '"$key"')
    return "\n".join(["#!/bin/sh", *lines, "unset SLURM_EXPORT_ENV", f"exec {called}", ""])
