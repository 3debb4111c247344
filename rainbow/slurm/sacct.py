"""What sacct prints of jobs: fields with their widths, and the step of a batch script below its job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rainbow.slurm.command_line import CommandError, GivenWords
from rainbow.slurm.job_rows import JobRow, read_states
from rainbow.slurm.squeue import tres_of
from rainbow.slurm.texts import MOST_WIDTH, long_duration, moment_text, one_line

DEFAULT = "jobid,jobname,partition,account,alloccpus,state,exitcode"


@dataclass(frozen=True, slots=True)
class Line:
    """A job or, `step`, its batch script."""

    row: JobRow
    step: bool
    zone: int
    units: str = ""


def _state(line: Line) -> str:
    if line.row.state == "CANCELLED" and not line.step:
        return f"CANCELLED by {line.row.uid}"
    return line.row.state


def _begun(line: Line) -> bool:
    return line.row.start is not None


def _nodes(line: Line) -> str:
    return line.row.node_list or "None assigned"


def _times(*choose: str) -> Callable[[Line], str]:
    """Return what shows the first of these times that a job has."""

    def value(line: Line) -> str:
        results = [getattr(line.row, name) for name in choose]
        return moment_text(next((one for one in results if one), None), "Unknown", line.zone)

    return value


def _of_job(value: Callable[[JobRow], object]) -> Callable[[Line], str]:
    """Return what a job shows and its step does not."""
    return lambda line: "" if line.step else str(value(line.row))


def _of_both(value: Callable[[JobRow], object]) -> Callable[[Line], str]:
    return lambda line: str(value(line.row))


_MIB = {"K": 1024, "M": 1, "G": 1 / 1024, "T": 1 / 1024**2, "P": 1 / 1024**3}


def _memory(line: Line) -> str:
    unit = line.units or "M"
    amount = line.row.memory * _MIB[unit]
    return "" if line.step or not line.row.memory else f"{amount:.2f}".rstrip("0").rstrip(".") + unit


# as it is written in the header, width, value
FIELDS: Mapping[str, tuple[str, int, Callable[[Line], str]]] = {
    name.lower(): (name, width, value)
    for name, width, value in (
        ("Account", 10, _of_both(lambda row: row.account)),
        ("AllocCPUS", 10, lambda line: str(line.row.cores if _begun(line) or not line.step else 0)),
        ("AllocNodes", 10, lambda line: str(len(line.row.nodes) if _begun(line) else 0)),
        ("AllocTRES", 10, lambda line: tres_of(line.row) if _begun(line) else ""),
        ("Cluster", 10, _of_both(lambda row: row.cluster)),
        ("Comment", 14, _of_job(lambda row: row.comment)),
        ("CPUTime", 10, lambda line: long_duration(line.row.run * line.row.cores)),
        ("CPUTimeRAW", 10, lambda line: str(int(line.row.run) * line.row.cores)),
        ("Elapsed", 10, lambda line: long_duration(line.row.run)),
        ("ElapsedRaw", 10, lambda line: str(int(line.row.run))),
        ("Eligible", 19, _times("begin", "submit")),
        ("End", 19, _times("end")),
        ("ExitCode", 8, _of_both(lambda row: f"{row.code}:{row.signal}")),
        ("DerivedExitCode", 15, _of_job(lambda row: f"{row.code}:0")),
        ("Flags", 20, lambda *_: ""),
        ("GID", 6, _of_job(lambda row: row.gid)),
        ("Group", 9, _of_job(lambda row: row.user)),
        ("JobID", -12, lambda line: line.row.id + (".batch" if line.step else "")),
        ("JobIDRaw", -12, lambda line: str(line.row.number) + (".batch" if line.step else "")),
        ("JobName", 10, lambda line: "batch" if line.step else line.row.name),
        ("NCPUS", 10, _of_both(lambda row: row.cores)),
        ("NNodes", 8, lambda line: str(1 if line.step else line.row.node_count)),
        ("NodeList", 15, lambda line: line.row.nodes[0] if line.step and line.row.nodes else _nodes(line)),
        ("NTasks", 8, lambda line: "1" if line.step else ""),
        ("Partition", 10, _of_job(lambda row: row.partition)),
        ("Priority", 10, _of_job(lambda row: max(0, row.priority))),
        ("QOS", 10, _of_job(lambda row: row.qos or "normal")),
        ("QOSRAW", 10, _of_job(lambda _: 1)),
        ("Reason", 22, _of_job(lambda row: row.reason)),
        ("ReqCPUS", 8, _of_both(lambda row: row.cores)),
        ("ReqMem", 10, _memory),
        ("ReqNodes", 8, _of_both(lambda row: row.node_count)),
        ("ReqTRES", 10, _of_job(tres_of)),
        ("Reserved", 10, lambda line: "" if line.step else long_duration(_waited(line.row))),
        ("Restarts", 8, _of_job(lambda row: row.restarts)),
        ("Start", 19, _times("start")),
        ("State", 10, _state),
        ("Submit", 19, _times("submit")),
        ("SubmitLine", 20, _of_job(lambda row: f"sbatch {row.command}".strip())),
        ("Suspended", 10, lambda *_: "00:00:00"),
        ("Timelimit", 10, _of_job(lambda row: long_duration(row.limit) if row.limit else "UNLIMITED")),
        ("TimelimitRaw", 12, _of_job(lambda row: int(row.limit // 60) if row.limit else "UNLIMITED")),
        ("UID", 6, _of_job(lambda row: row.uid)),
        ("User", 9, _of_job(lambda row: row.user)),
        ("WorkDir", 20, _of_job(lambda row: row.folder)),
    )
}
_ALIASES = {"jobname": "jobname", "nodes": "nodelist", "cputimeraw": "cputimeraw", "allocnodes": "allocnodes"}
# what Slurm keeps and nobody measures here
_WITHOUT = """
    AdminComment AssocID AveCPU AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize BlockID Constraints
    Container ConsumedEnergy ConsumedEnergyRaw DBIndex Extra FailedNode JobHetID Layout Licenses LinuxProcPgID
    MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages
    MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU
    MinCPUNode MinCPUTask Planned PlannedCPU PlannedCPURAW ReqCPUFreq ReqCPUFreqMin ReqCPUFreqMax ReqCPUFreqGov
    Reservation ReservationId ReservationID ResvCPU ResvCPURAW SystemComment SystemCPU TotalCPU TRESUsageInAve
    TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask
    TRESUsageInTot TRESUsageOutAve TRESUsageOutMax TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin
    TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot UserCPU WCKey WCKeyID
"""
_EMPTY = {name.lower(): name for name in _WITHOUT.split()}


def _waited(row: JobRow) -> float:
    return max(0.0, (row.start or row.end or row.submit) - (row.begin or row.submit))


def _empty(_: Line) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its header, its width (negative: to the left), its value."""

    header: str
    width: int
    value: Callable[[Line], str]


_FIELD = re.compile(r"([A-Za-z_]+)(?:%(-?)([0-9]+))?", re.ASCII)


def read_fields(text: str) -> list[Field]:
    """Read what -o says.

    >>> [(one.header, one.width) for one in read_fields("jobid%-20,State")]
    [('JobID', -20), ('State', 10)]
    """
    result = []
    for part in (one.strip() for one in text.split(",")):
        if not part:
            continue
        said = _FIELD.fullmatch(part)
        name = said[1].lower() if said else ""
        known = FIELDS.get(_ALIASES.get(name, name))
        if known is None and name in _EMPTY:
            known = (_EMPTY[name], 10, _empty)
        if said is None or known is None or len(said[3] or "") > 6 or int(said[3] or 0) > MOST_WIDTH:
            raise CommandError(f'sacct: error: Invalid field requested: "{part.partition("%")[0][:60]}"\n')
        width = int(said[3]) * (-1 if said[2] else 1) if said[3] else known[1]
        result.append(Field(known[0], width, known[2]))
    return result


def states_wanted(words: GivenWords) -> set[str] | None:
    """Return the states that are shown; None: all."""
    if "state" not in words:
        return None

    def wrong(word: str) -> CommandError:
        return CommandError(f"sacct: fatal: unrecognized job state value: {word[:40]}\n")

    return read_states(words.words("state"), wrong)


def lines_of(rows: Sequence[JobRow], words: GivenWords, zone: int) -> Iterator[Line]:
    """Yield the lines, with -X without those of steps."""
    units = words.last("units").upper()
    if units and units not in _MIB:
        raise CommandError(f"sacct: error: Invalid value given to --units: {units[:20]}\n")
    for row in rows:
        yield Line(row, False, zone, units)
        if "allocations" not in words and row.start is not None:
            yield Line(replace(row, reason=""), True, zone, units)


def written(rows: Sequence[JobRow], words: GivenWords, environment: Mapping[str, str], zone: int) -> str:
    """Write what sacct prints."""
    fields = read_fields(words.last("format") or environment.get("SACCT_FORMAT") or DEFAULT)
    bars = "parsable" in words or "parsable2" in words
    between, end = words.last("delimiter") or "|", "" if "parsable2" in words else words.last("delimiter") or "|"

    def line(cells: Sequence[str]) -> str:
        if bars:
            return between.join(cells) + end
        return "".join(f"{_fitted(cell, one.width)} " for cell, one in zip(cells, fields, strict=True))

    lines = [] if "noheader" in words else [line([one.header for one in fields])]
    if lines and not bars:
        lines.append(line(["-" * abs(one.width) for one in fields]))
    lines += [line([one_line(each.value(one)) for each in fields]) for one in lines_of(rows, words, zone)]
    return "".join(f"{one}\n" for one in lines)


def _fitted(text: str, width: int) -> str:
    cut = text if len(text) <= abs(width) else text[: abs(width) - 1] + "+"
    return cut.ljust(-width) if width < 0 else cut.rjust(width)
