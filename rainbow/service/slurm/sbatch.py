"""sbatch: a batch script submitted as Slurm's own sbatch would, refusals in its words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.errors import Forbidden, InputError, JobspecError, NotFound, RainbowError, Refused
from rainbow.jobspec.sbatch import GivenOptions, Surroundings, jobspec_of_call, read_call, words_of_call
from rainbow.jobspec.sbatch.options import OPTIONS
from rainbow.scheduling import traits_of
from rainbow.scheduling.dependencies import BY_JOB
from rainbow.service.jobs import names
from rainbow.service.jobs.lifecycle import visible_job
from rainbow.service.placement import batch
from rainbow.service.placement.submission import Submission, match_answer
from rainbow.service.slurm.call import Answer, Call
from rainbow.slurm.command_line import VERSION, CommandError
from rainbow.store import clusters, tasks
from rainbow.store.jobs import PENDING

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service

LOOK = 1.0  # seconds between two looks of --wait
MOST_TOLD = 8  # clusters whose reasons are told
UNRECOGNIZED = "sbatch: unrecognized option '{}'\nTry \"sbatch --help\" for more information\n"
FAILED = "sbatch: error: Batch job submission failed: {}\n"
_NO_OPTION = re.compile(r"^(--?[^ ]+) is not an option of sbatch")


def sbatch(service: Service, who: Caller, call: Call) -> Answer:
    """Submit a script; the answer to the first call names the file to read."""
    if call.waits_for:
        return _waited(service, who, call)
    options, rest = _words(call)
    if "version" in options:
        return Answer(out=f"{VERSION}\n")
    if "help" in options or "usage" in options:
        return Answer(out="Usage: sbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]\n")
    path = rest[0] if rest else "-"
    if "wrap" not in options and call.script is None:
        return Answer(read=path)
    try:
        opened = read_call(call.script or "", call.words, call.environment, path.rpartition("/")[2] or "sbatch")
    except JobspecError as fault:
        raise _refused(fault) from fault
    if unknown := [name for name in _named(opened) if name not in OPTIONS]:
        raise CommandError(UNRECOGNIZED.format(f"--{unknown[0]}"), 255)
    chosen = opened.clusters
    opened, places = _partition(service, who, _with_defaults(opened))
    document = _document(service, who, opened, call)
    submission = Submission(
        jobspec=document,
        login=call.user or None,
        clusters=_clusters(service, who, chosen, places),
        key=call.key,
        credentials=call.credentials,
    )
    if "test-only" in options:
        return _tested(service, who, submission)
    try:
        placed, _ = batch.submit(service, who, submission)
    except RainbowError as fault:
        raise CommandError(_told(fault)) from fault
    number, there = placed["number"], f";{placed['cluster']}" if chosen else ""
    text = f"{number}{there}" if "parsable" in options else f"Submitted batch job {number}"
    text += f" on cluster {placed['cluster']}" if chosen and "parsable" not in options else ""
    printed = "" if "quiet" in options and "parsable" not in options else f"{text}\n"
    return Answer(out=printed, again=LOOK, waits_for=placed["id"]) if "wait" in options else Answer(out=printed)


def _words(call: Call) -> tuple[Mapping[str, str], Sequence[str]]:
    try:
        options, rest = words_of_call(call.words)
    except JobspecError as fault:
        raise _refused(fault) from fault
    if unknown := [name for name in options if name not in OPTIONS]:
        raise CommandError(UNRECOGNIZED.format(f"--{unknown[0]}"), 255)
    return options, rest


def _refused(fault: RainbowError) -> CommandError:
    if result := _NO_OPTION.match(fault.message):
        return CommandError(UNRECOGNIZED.format(result[1]), 255)
    at = f" (line {fault.line} of the script)" if isinstance(fault, InputError) and fault.line else ""
    return CommandError(f"sbatch: error: {fault.message}{at}\n")


def _named(opened: GivenOptions) -> list[str]:
    return [name for options in opened.components for name in options]


def _with_defaults(opened: GivenOptions) -> GivenOptions:
    """Say what sbatch takes where nothing is said: the whole environment, and slurm-%j.out."""
    first = {"export": "ALL", **opened.options}
    first.setdefault("output", "slurm-%A_%a.out" if "array" in first else "slurm-%j.out")
    return GivenOptions(
        (first, *opened.components[1:]), opened.script, opened.name, opened.arguments, opened.environment
    )


def _partition(service: Service, who: Caller, opened: GivenOptions) -> tuple[GivenOptions, list[str]]:
    """Read --partition: names of clusters choose these; another is a site's own, where there is a site."""
    named = [name for name in opened.options.get("partition", "").split(",") if name]
    if not named:
        return opened, []
    seen = {name: entry for name, entry in service.catalogue.items() if who.sees(entry.id)}
    if here := [name for name in named if name in seen]:
        rest = {name: value for name, value in opened.options.items() if name != "partition"}
        parts = (rest, *opened.components[1:])
        return GivenOptions(parts, opened.script, opened.name, opened.arguments, opened.environment), here
    with service.store.read() as connection:
        records = [clusters.find(connection, name) for name in seen]
    sites = [one.name for one in records if one is not None and traits_of(one.policy).hands_over]
    if not sites:
        text = f"sbatch: error: invalid partition specified: {opened.options['partition']}\n"
        raise CommandError(text + FAILED.format("Invalid partition name specified"))
    return opened, sites


def _clusters(service: Service, who: Caller, chosen: str, places: list[str]) -> list[str] | None:
    """Return the clusters that --clusters and --partition leave; None: any."""
    if not chosen or chosen == "all":
        return places or None
    named = [name for name in chosen.split(",") if name]
    seen = {name for name, entry in service.catalogue.items() if who.sees(entry.id)}
    if unknown := [name for name in named if name not in seen]:
        raise CommandError(
            f"sbatch: error: '{unknown[0]}' can't be reached now, or it is an invalid entry for --cluster.  "
            "Use 'sacctmgr list clusters' to see available clusters.\n"
        )
    remaining = [name for name in named if not places or name in places]
    if not remaining:
        raise CommandError(FAILED.format("Invalid partition name specified"))
    return remaining


def _document(service: Service, who: Caller, opened: GivenOptions, call: Call) -> dict[str, Any]:
    """Return the jobspec of a call: its folder must be there, and jobs it waits for are named by their ids."""
    surroundings = Surroundings(call.now, call.folder, call.environment, call.umask)
    try:
        document, _ = jobspec_of_call(opened, surroundings)
    except JobspecError as fault:
        raise _refused(fault) from fault
    system = document["attributes"]["system"]
    if "submitted_from" in system:
        system["cwd"] = system.pop("submitted_from")
    if call.host:
        system["submit-host"] = call.host
    for one in system.get("dependencies", ()):
        if one["scheme"] in BY_JOB:
            one["value"] = _whole(service, who, one["value"])
    return document


def _whole(service: Service, who: Caller, text: str) -> str:
    """Return the id of a job that is waited for; of an element, that of its array."""
    try:
        job = names.find(service, who, text).job
        with service.store.read() as connection:
            visible_job(connection, who, job)
    except RainbowError as fault:
        raise CommandError(FAILED.format("Job dependency problem")) from fault
    return job


def _tested(service: Service, who: Caller, submission: Submission) -> Answer:
    try:
        results = match_answer(service, who, submission)
    except RainbowError as fault:
        raise CommandError(_told(fault)) from fault
    places = ",".join(one["cluster"] for one in results["candidates"])
    if not places:
        raise CommandError(_reasons(results) + "allocation failure: Requested node configuration is not available\n")
    return Answer(out=f"sbatch: Job could run on {places}\n")


def _told(fault: RainbowError) -> str:
    """Say in sbatch's words why nothing was submitted; of clusters each its reason."""
    if isinstance(fault, Refused):
        reasons = _reasons(fault.facts) or f"sbatch: error: {fault.message}\n"
        return reasons + FAILED.format("Requested node configuration is not available")
    words = "Access/permission denied" if isinstance(fault, Forbidden) else "Unspecified error"
    return f"sbatch: error: {fault.message}\n" + FAILED.format(words)


def _reasons(facts: Mapping[str, Any]) -> str:
    answers = [f"{one['cluster']}: {one.get('text') or one.get('reason')}" for one in facts.get("refusals") or ()]
    answers += [f"{name}: {why}" for name, why in (facts.get("dropped") or {}).items()]
    answers += [f"{name}: {why}" for name, why in (facts.get("barred") or {}).items()]
    more = [f"and {len(answers) - MOST_TOLD} clusters more"] if len(answers) > MOST_TOLD else []
    return "".join(f"sbatch: error: {text}\n" for text in [*answers[:MOST_TOLD], *more])


def _waited(service: Service, who: Caller, call: Call) -> Answer:
    """Answer --wait: the highest exit code when the job has ended."""
    with service.store.read() as connection:
        try:
            record = visible_job(connection, who, call.waits_for)
        except NotFound:
            return Answer(exit=1)
        if record.state in PENDING:
            return Answer(again=LOOK, waits_for=record.id)
        codes = [
            task.exit_code or int(str(task.state) != "COMPLETED") for task in tasks.of_job(connection, record.id)
        ]
    return Answer(exit=max(codes, default=1))
