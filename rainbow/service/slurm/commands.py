"""squeue, sacct, scancel, scontrol, sinfo: which jobs their words mean, and what is done to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from rainbow.errors import NotFound, RainbowError
from rainbow.jobspec.batch import read_array
from rainbow.jobspec.times import moment, seconds_of
from rainbow.service.jobs import lifecycle, names
from rainbow.service.jobs.verbs import ManyJobs, change
from rainbow.service.placement.update import update
from rainbow.service.slurm.call import Answer, Call
from rainbow.service.slurm.rows import RowFilter, Viewer, job_rows, node_rows
from rainbow.service.slurm.sbatch import sbatch
from rainbow.slurm import sacct as sacct_texts
from rainbow.slurm import scontrol as texts
from rainbow.slurm import sinfo as sinfo_texts
from rainbow.slurm import squeue as squeue_texts
from rainbow.slurm.command_line import AnsweredError, CommandError, GivenWords, read_words
from rainbow.slurm.job_rows import ACTIVE, JobRow, read_states, together
from rainbow.slurm.texts import MOST

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service

RECENT = 300.0  # seconds that squeue shows an ended job: MinJobAge
AHEAD = 60.0  # seconds by which a clock may be before ours
ENDS = frozenset({"", "KILL", "TERM", "INT", "9", "15", "2"})  # signals that end a job


def run(service: Service, who: Caller, command: str, call: Call) -> Answer:
    """Carry out one call of a command; what is wrong is said as the command says it."""
    try:
        answer = COMMANDS[command](service, who, call)
    except AnsweredError as said:
        return Answer(out=said.text)
    except CommandError as fault:
        return Answer(err=fault.text, exit=fault.code)
    except RainbowError as fault:
        return Answer(err=f"{command}: error: {fault.message}\n", exit=1)
    if len(answer.out) > MOST:
        text = f"{command}: error: more than {MOST >> 20} MiB would be printed; ask for fewer jobs\n"
        return Answer(err=text, exit=1)
    return answer


def _viewer(call: Call) -> Viewer:
    return Viewer(call.user, call.uid, call.gid)


# ── which jobs ──

_JOB = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*:[0-9]+|[0-9]+)(?:_(?:([0-9]+|\*)|\[([^\]]*)\]))?(?:[.+].*)?", re.ASCII
)
_LISTED = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True)
class Part:
    """A job that is named, or of an array these elements by index; None: all of it."""

    job: str
    indices: frozenset[int] | None = None

    def has(self, row: JobRow) -> bool:
        """Return whether a row is of it."""
        return row.job == self.job and (self.indices is None or row.index in self.indices)


def parts_of(
    service: Service, who: Caller, words: Iterable[str], wrong: Callable[[str], Exception]
) -> tuple[list[Part], list[str]]:
    """Return what job ids mean, and those that name nothing: N, N_K, N_[1-3,5], N.batch, SITE:N."""
    result, unknown = list[Part](), list[str]()
    for word in (part for text in words for part in _LISTED.split(text) if part):
        said = _JOB.fullmatch(word)
        if said is None:
            raise wrong(word)
        try:
            named = names.find(service, who, said[1])
        except NotFound:
            unknown.append(word)
            continue
        indices: frozenset[int] | None = None
        if said[2] and said[2] != "*":
            indices = frozenset({int(said[2])})
        elif said[3]:
            indices = frozenset(read_array(said[3], "").ids)
        elif named.element is not None:
            row = next((one for one in _rows(service, who, [named.job]) if one.place == named.element), None)
            indices = frozenset({row.index}) if row is not None and row.index is not None else None
        result.append(Part(named.job, indices))
    return result, unknown


def _rows(service: Service, who: Caller, ids: Iterable[str], viewer: Viewer | None = None) -> list[JobRow]:
    return job_rows(service, who, RowFilter(ids=set(ids)), viewer or Viewer("", 0, 0))


def _filtered(rows: Iterable[JobRow], words: GivenWords, environment: Mapping[str, str], prefix: str) -> list[JobRow]:
    """Return the rows that partition, cluster and account leave."""

    def said(name: str, variable: str) -> list[str]:
        return words.words(name) or [one for one in environment.get(f"{prefix}{variable}", "").split(",") if one]

    partitions, clusters = said("partition", "PARTITION"), said("clusters", "CLUSTERS")
    accounts = said("account", "ACCOUNT")
    return [
        row
        for row in rows
        if (not partitions or row.partition in partitions or row.cluster in partitions)
        and (not clusters or "all" in clusters or row.cluster in clusters)
        and (not accounts or row.account in accounts)
    ]


# ── squeue ──


def squeue(service: Service, who: Caller, call: Call) -> Answer:
    """List jobs that have not ended, and with --states those that ended a moment ago."""
    words, environment = read_words("squeue", call.words), call.environment
    states = squeue_texts.states_wanted(words, environment)
    users = words.words("user") or [one for one in environment.get("SQUEUE_USERS", "").split(",") if one]
    users += [call.user] if "me" in words else []
    named = words.words("name") or [one for one in environment.get("SQUEUE_NAMES", "").split(",") if one]
    recent = service.clock() - RECENT
    requirement = RowFilter(names=named, users=users, ended_since=recent)
    parts: list[Part] = []
    if listed := [one for one in words.options.get("jobs", []) if one]:
        parts, _ = parts_of(service, who, listed, lambda word: CommandError(f"Invalid job id: {word[:60]}\n"))
        requirement = RowFilter(ids={part.job for part in parts})
    rows = [row for row in job_rows(service, who, requirement, _viewer(call)) if row.end is None or row.end >= recent]
    if listed:
        rows = [row for row in rows if any(part.has(row) for part in parts)]
        if not rows and len(words.words("jobs")) == 1:
            raise CommandError(texts.NOT_FOUND)
        rows = [row for row in rows if (not users or row.user in users) and (not named or row.name in named)]
    rows = _filtered([row for row in rows if row.state in states], words, environment, "SQUEUE_")
    shown = rows if "array" in words or environment.get("SQUEUE_ARRAY") else together(rows)
    zone, clusters = call.offset, words.words("clusters")
    if not clusters or clusters == ["all"] or "noheader" in words:
        return Answer(out=squeue_texts.written(shown, words, environment, zone))
    sections = [
        f"CLUSTER: {name}\n"
        + squeue_texts.written([row for row in shown if row.cluster == name], words, environment, zone)
        for name in clusters
    ]
    return Answer(out="\n".join(sections))


# ── sacct ──


def sacct(service: Service, who: Caller, call: Call) -> Answer:
    """List jobs of a time, ended ones too."""
    words, environment = read_words("sacct", call.words), call.environment
    states, listed = sacct_texts.states_wanted(words), words.options.get("jobs", [])
    since = _moment(call, words.last("starttime"), "sacct")
    until = _moment(call, words.last("endtime"), "sacct")
    if since is None and not listed:
        since = call.now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    users = words.words("user") + words.words("uid")
    if not users and not listed and "allusers" not in words and call.uid != 0:
        users = [call.user]
    if listed:
        wrong = CommandError("sacct: fatal: Bad job/step specified: {}\n")
        parts, _ = parts_of(service, who, listed, lambda word: CommandError(wrong.text.format(word[:60])))
        rows = _rows(service, who, {part.job for part in parts}, _viewer(call))
        rows = [row for row in rows if any(part.has(row) for part in parts)]
        rows = [row for row in rows if since is None or row.end is None or row.end >= since]
    else:
        requirement = RowFilter(names=words.words("name"), users=users, ended_since=since, until=until)
        rows = job_rows(service, who, requirement, _viewer(call))
    rows = [row for row in rows if (not users or row.user in users or str(row.uid) in users)]
    rows = [row for row in rows if "name" not in words or row.name in words.words("name")]
    rows = [row for row in rows if states is None or row.state in states]
    if nodes := set(words.words("nodelist")):
        rows = [row for row in rows if nodes & set(row.nodes)]
    shown = together(_filtered(rows, words, environment, "SACCT_"))
    return Answer(out=sacct_texts.written(shown, words, environment, call.offset))


def _moment(call: Call, text: str, command: str) -> float | None:
    """Read a time as sacct does: one of a day without a date is today's."""
    if not text:
        return None
    result = moment(text, call.now)
    if result is None:
        raise CommandError(f"{command}: error: Invalid time specification (pos=0): {text[:60]}\n")
    is_clock = re.fullmatch(r"\s*\d{1,2}:\d\d.*|midnight|noon|fika|teatime|elevenses", text, re.IGNORECASE)
    day = timedelta(days=1).total_seconds()
    return result - day if is_clock and result > call.at + AHEAD else result


# ── scancel ──


def scancel(service: Service, who: Caller, call: Call) -> Answer:
    """Cancel jobs; what is not there or has ended is no error."""
    words = read_words("scancel", call.words)
    named = words.words("name") + words.words("jobname")
    users = words.words("user") + ([call.user] if "me" in words else [])
    places = words.words("partition") + words.words("account") + words.words("clusters")
    if not (words.rest or named or users or places or "state" in words):
        raise CommandError("scancel: error: No job identification provided\n")
    signal = words.last("signal").upper().removeprefix("SIG")
    if signal not in ENDS:
        raise CommandError(f"scancel: error: --signal={signal[:20]} is not carried by Rainbow\n")
    wrong = CommandError("scancel: error: Invalid job id {}\n")
    parts, _ = parts_of(service, who, words.rest, lambda word: CommandError(wrong.text.format(word[:60])))
    if words.rest:
        rows = _rows(service, who, {part.job for part in parts}, _viewer(call))
        rows = [row for row in rows if any(part.has(row) for part in parts)]
        rows = [row for row in rows if (not users or row.user in users) and (not named or row.name in named)]
    else:
        users = users or [call.user]
        requirement = RowFilter(names=named, users=users, ended_since=float("inf"))
        rows = job_rows(service, who, requirement, _viewer(call))
    states = read_states(words.words("state"), lambda word: CommandError(f"Invalid job state: {word[:40]}\n"))
    rows = [row for row in rows if row.state in (states or ACTIVE)]
    return _cancel(service, who, _filtered(rows, words, call.environment, "SCANCEL_"))


def _cancel(service: Service, who: Caller, rows: Iterable[JobRow]) -> Answer:
    """Cancel whole jobs, and elements where not all of an array that is left is meant, in one request."""
    requirements: dict[str, list[JobRow]] = {}
    for row in rows:
        requirements.setdefault(row.job, []).append(row)
    meant: list[str] = []
    arrays = [job for job, own in requirements.items() if own[0].index is not None]
    remaining = Counter(row.job for row in (_rows(service, who, arrays) if arrays else ()) if row.state in ACTIVE)
    for job, own in requirements.items():
        meant += [job] if len(own) >= remaining[job] else [f"{row.array}_{row.index}" for row in own]
    answer = ManyJobs(service, who, "cancel").named(meant, None)
    errors = [
        f"scancel: error: Kill job error on job id {row['job']}: {row['text']}\n"
        for row in answer.refused
        if row["code"] != "conflict"  # it has ended meanwhile
    ]
    return Answer(err="".join(errors), exit=1 if errors else 0)


# ── scontrol ──


def scontrol(service: Service, who: Caller, call: Call) -> Answer:
    """Show jobs, partitions, nodes and the configuration; hold, release, suspend, resume, requeue, update."""
    words = read_words("scontrol", call.words)
    verb, *rest = words.rest or [""]
    if verb == "show":
        return Answer(out=_shown(service, who, call, words, rest))
    if verb == "ping":
        return Answer(out="Slurmctld(primary) at rainbow is UP\n")
    if verb in VERBS and rest:
        return _act(service, who, verb, rest)
    if verb == "write" and rest[:1] == ["batch_script"] and len(rest) > 1:
        return _script(service, who, rest[1:])
    if verb == "update":
        return _update(service, who, call, rest)
    raise CommandError(
        f"scontrol: error: {' '.join([verb, *rest[:1]])[:60] or 'no command'} is not carried by Rainbow\n"
    )


# of scontrol → of ours
VERBS: Mapping[str, str] = {
    **{verb: verb for verb in ("hold", "release", "suspend", "resume", "requeue")},
    "uhold": "hold",
}


def _act(service: Service, who: Caller, verb: str, listed: Iterable[str]) -> Answer:
    errors = []
    for word in (part for text in listed for part in text.removeprefix("jobid=").split(",") if part):
        try:
            named = names.find(service, who, word)
            change(service, who, VERBS[verb], named.job, named.element)
        except NotFound:
            errors.append(f"Invalid job id specified for job {word}\n")
        except RainbowError as fault:
            errors.append(f"{fault.message} for job {word}\n")
    return Answer(err="".join(errors), exit=1 if errors else 0)


def _update(service: Service, who: Caller, call: Call, rest: list[str]) -> Answer:
    """Change a job's limit, priority or name; Slurm counts a limit in minutes, a nicer job waits longer."""
    job, request = texts.read_update(rest)
    requirements: dict[str, object] = {}
    for key, value in request.items():
        if key == "time_limit":
            result = seconds_of(value, plain=60)
            if result is None:
                raise CommandError("Invalid time limit specified for job\n")
            requirements[key] = result
        elif key in ("priority", "nice"):
            if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
                raise CommandError(f"Invalid {key} specified: {value[:20]}\n")
            requirements["priority"] = int(value) if key == "priority" else -int(value)
        elif key == "name":
            requirements[key] = value
        else:
            raise CommandError(f"scontrol: error: update {key} is not carried by Rainbow\n")
    try:
        update(service, who, names.whole_job(service, who, job), requirements, call.user or None)
    except NotFound as fault:
        raise CommandError(f"Invalid job id specified for job {job[:40]}\n") from fault
    except RainbowError as fault:
        raise CommandError(f"{fault.message} for job {job[:40]}\n") from fault
    return Answer()


def _script(service: Service, who: Caller, words: list[str]) -> Answer:
    """Answer `write batch_script JOB -`: the script; only the user's side writes files."""
    from rainbow.service.jobs.jobspecs import reading

    if words[1:] != ["-"]:
        raise CommandError("scontrol: error: write batch_script to a file is not carried by Rainbow; give - \n")
    with service.store.read() as connection:
        record = lifecycle.own_job(connection, who, names.whole_id(service, who, words[0]))
        script = reading(connection, record.id).request.script
    if not script:
        raise CommandError("job script retrieval failed: Job/step already completing or completed\n")
    return Answer(out=script)


def _shown(service: Service, who: Caller, call: Call, words: GivenWords, rest: list[str]) -> str:
    what, *named = rest or [""]
    what, _, value = what.partition("=")
    named = [value, *named] if value else named
    one, result = "oneliner" in words, what.lower()
    if result and "hostnames".startswith(result) and len(result) > 5:
        return texts.hostnames_text(named, call.environment.get("SLURM_JOB_NODELIST", ""))
    if result in ("hostlist", "hostlistsorted"):
        return texts.hostlist_text(named)
    if result and "jobs".startswith(result):
        return _show_jobs(service, who, call, words, named)
    if result and "config".startswith(result[:4]) and len(result) >= 3:
        return texts.config_text(call.at, call.offset, service.settings.name)
    rows = node_rows(service, who)
    default = rows[0].partition if rows else ""
    if result and "partitions".startswith(result):
        rows = [row for row in rows if not named or row.partition in named]
        if named and not rows:
            raise CommandError(f"Partition {named[0][:60]} not found\n")
        return texts.partition_text(rows, default, one=one)
    if result and "nodes".startswith(result):
        text = texts.node_text(rows, named, one=one)
        if named and not text:
            raise CommandError(f"Node {named[0][:60]} not found\n")
        return text
    raise CommandError(f"scontrol: error: show {result[:60]} is not carried by Rainbow\n")


def _show_jobs(service: Service, who: Caller, call: Call, words: GivenWords, named: list[str]) -> str:
    recent = service.clock() - RECENT
    if named:
        wrong = CommandError(texts.NOT_FOUND)
        parts, _ = parts_of(service, who, named, lambda _: wrong)
        rows = _rows(service, who, {part.job for part in parts}, _viewer(call))
        rows = [row for row in rows if any(part.has(row) for part in parts)]
        if not rows:
            raise wrong
    else:
        rows = job_rows(service, who, RowFilter(ended_since=recent), _viewer(call))
    if not rows:
        return "No jobs in the system\n"
    return texts.job_text(together(rows), call.offset, one="oneliner" in words, details="details" in words)


# ── sinfo, and what is empty here ──


def sinfo(service: Service, who: Caller, call: Call) -> Answer:
    """Show clusters, as partitions, and their nodes."""
    words = read_words("sinfo", call.words)
    rows = node_rows(service, who)
    default = rows[0].partition if rows else ""
    clusters = [name for name in words.words("clusters") if name != "all"]
    rows = [row for row in rows if not clusters or row.partition in clusters]
    head = f"CLUSTER: {clusters[0]}\n" if clusters and "noheader" not in words else ""
    return Answer(out=head + sinfo_texts.written(rows, words, call.environment, default))


def nothing(service: Service, who: Caller, call: Call) -> Answer:
    """Answer sacctmgr and sshare: nothing is there to show."""
    if call.words[:1] and call.words[0] not in ("show", "list") and not call.words[0].startswith("-"):
        raise CommandError(f"sacctmgr: error: {call.words[0][:60]} is not carried by Rainbow\n")
    return Answer()


COMMANDS: Mapping[str, Callable[[Service, Caller, Call], Answer]] = {
    "sbatch": sbatch,
    "squeue": squeue,
    "sacct": sacct,
    "scancel": scancel,
    "scontrol": scontrol,
    "sinfo": sinfo,
    "sacctmgr": nothing,
    "sshare": nothing,
}
