"""What squeue prints of jobs: columns by letter and by name, widths, order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow.slurm.command_line import CommandError, GivenWords
from rainbow.slurm.job_rows import ACTIVE, SHORT, JobRow, read_states
from rainbow.slurm.texts import MOST_WIDTH, duration, fitted, moment_text, one_line

Value = Callable[[JobRow, int], str]  # of a job, with the zone's seconds
DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
CLUSTERS = ("squeue_clusters", "clusters")


def _limit(row: JobRow, _: int) -> str:
    return duration(row.limit) if row.limit else "UNLIMITED"


def _left(row: JobRow, _: int) -> str:
    return duration(max(0.0, row.limit - row.run)) if row.limit else "UNLIMITED"


def _place(row: JobRow, _: int) -> str:
    explained = row.state in ("PENDING", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "FAILED", "NODE_FAIL")
    return f"({row.reason})" if explained else row.node_list


def _end(row: JobRow, zone: int) -> str:
    expected = row.start + row.limit if row.start is not None and row.limit else None
    return moment_text(row.end if row.end is not None else expected, "N/A", zone)


def _memory(row: JobRow, _: int) -> str:
    return f"{row.memory}M" if row.memory else "0"


# header and value, by letter
LETTERS: Mapping[str, tuple[str, Value]] = {
    "a": ("ACCOUNT", lambda row, _: row.account or "(null)"),
    "A": ("JOBID", lambda row, _: str(row.number)),
    "B": ("EXEC_HOST", lambda row, _: row.nodes[0] if row.nodes else "n/a"),
    "c": ("MIN_CPUS", lambda row, _: str(max(1, row.cores // max(1, row.tasks)))),
    "C": ("CPUS", lambda row, _: str(row.cores)),
    "d": ("MIN_TMP_DISK", lambda *_: "0"),
    "D": ("NODES", lambda row, _: str(row.node_count)),
    "e": ("END_TIME", _end),
    "E": ("DEPENDENCY", lambda row, _: row.dependency or "(null)"),
    "f": ("FEATURES", lambda *_: "(null)"),
    "F": ("ARRAY_JOB_ID", lambda row, _: str(row.array)),
    "g": ("GROUP", lambda row, _: row.user),
    "G": ("GROUP", lambda row, _: str(row.gid)),
    "h": ("OVER_SUBSCRIBE", lambda *_: "OK"),
    "H": ("SOCKETS_PER_NODE", lambda *_: "*"),
    "i": ("JOBID", lambda row, _: row.id),
    "I": ("CORES_PER_SOCKET", lambda *_: "*"),
    "j": ("NAME", lambda row, _: row.name),
    "J": ("THREADS_PER_CORE", lambda *_: "*"),
    "k": ("COMMENT", lambda row, _: row.comment or "(null)"),
    "K": ("ARRAY_TASK_ID", lambda row, _: row.index_text),
    "l": ("TIME_LIMIT", _limit),
    "L": ("TIME_LEFT", _left),
    "m": ("MIN_MEMORY", _memory),
    "M": ("TIME", lambda row, _: duration(row.run)),
    "n": ("REQ_NODES", lambda *_: ""),
    "N": ("NODELIST", lambda row, _: row.node_list),
    "o": ("COMMAND", lambda row, _: row.command or "(null)"),
    "O": ("CONTIGUOUS", lambda *_: "0"),
    "p": ("PRIORITY", lambda row, _: f"{min(1.0, max(0.0, row.priority / (1 << 32))):.14f}"),
    "P": ("PARTITION", lambda row, _: row.partition),
    "q": ("QOS", lambda row, _: row.qos or "normal"),
    "Q": ("PRIORITY", lambda row, _: str(max(0, row.priority))),
    "r": ("REASON", lambda row, _: row.reason),
    "R": ("NODELIST(REASON)", _place),
    "s": ("SELECT_JOBINFO", lambda *_: ""),
    "S": ("START_TIME", lambda row, zone: moment_text(row.start, "N/A", zone)),
    "t": ("ST", lambda row, _: SHORT[row.state]),
    "T": ("STATE", lambda row, _: row.state),
    "u": ("USER", lambda row, _: row.user),
    "U": ("UID", lambda row, _: str(row.uid)),
    "v": ("RESERVATION", lambda *_: "(null)"),
    "V": ("SUBMIT_TIME", lambda row, zone: moment_text(row.submit, "N/A", zone)),
    "w": ("WCKEY", lambda *_: "(null)"),
    "W": ("LICENSES", lambda *_: "(null)"),
    "x": ("EXC_NODES", lambda *_: ""),
    "X": ("CORE_SPEC", lambda *_: "N/A"),
    "y": ("NICE", lambda row, _: str(-row.priority if row.priority < 0 else 0)),
    "Y": ("SCHEDNODES", lambda *_: "(null)"),
    "z": ("S:C:T", lambda *_: "*:*:*"),
    "Z": ("WORK_DIR", lambda row, _: row.folder),
}
# names of -O, by the letter that shows the same
NAMES = {
    "account": "a",
    "arrayjobid": "F",
    "arraytaskid": "K",
    "batchhost": "B",
    "command": "o",
    "comment": "k",
    "contiguous": "O",
    "corespec": "X",
    "dependency": "E",
    "endtime": "e",
    "feature": "f",
    "groupid": "G",
    "groupname": "g",
    "jobarrayid": "i",
    "jobid": "A",
    "licenses": "W",
    "mincpus": "c",
    "minmemory": "m",
    "mintmpdisk": "d",
    "name": "j",
    "nice": "y",
    "nodelist": "N",
    "nodes": "N",
    "numcpus": "C",
    "numnodes": "D",
    "oversubscribe": "h",
    "partition": "P",
    "priority": "p",
    "prioritylong": "Q",
    "qos": "q",
    "reason": "r",
    "reasonlist": "R",
    "reqnodes": "n",
    "reservation": "v",
    "schednodes": "Y",
    "sct": "z",
    "selectjobinfo": "s",
    "starttime": "S",
    "state": "T",
    "statecompact": "t",
    "submittime": "V",
    "timeleft": "L",
    "timelimit": "l",
    "timeused": "M",
    "userid": "U",
    "username": "u",
    "wckey": "w",
    "workdir": "Z",
    "exc_nodes": "x",
    "excnodes": "x",
}
_OTHERS: Mapping[str, tuple[str, Value]] = {  # those of no letter
    "stderr": ("STDERR", lambda row, _: row.error or row.output),
    "stdin": ("STDIN", lambda row, _: row.input or "/dev/null"),
    "stdout": ("STDOUT", lambda row, _: row.output),
    "cluster": ("CLUSTER", lambda row, _: row.cluster),
    "exit_code": ("EXIT_CODE", lambda row, _: str(row.code)),
    "numtasks": ("TASKS", lambda row, _: str(row.tasks)),
    "restartcnt": ("RESTART_COUNT", lambda row, _: str(row.restarts)),
    "requeue": ("REQUEUE", lambda row, _: str(int(row.requeue))),
    "cpus-per-task": ("CPUS_PER_TASK", lambda row, _: str(max(1, row.cores // max(1, row.tasks)))),
    "maxcpus": ("MAX_CPUS", lambda *_: "0"),
    "maxnodes": ("MAX_NODES", lambda *_: "0"),
    "batchflag": ("BATCH_FLAG", lambda *_: "1"),
    "eligibletime": ("ELIGIBLE_TIME", lambda row, zone: moment_text(row.begin or row.submit, "N/A", zone)),
    "accruetime": ("ACCRUE_TIME", lambda row, zone: moment_text(row.begin or row.submit, "N/A", zone)),
    "tres-alloc": ("TRES_ALLOC", lambda row, _: tres_of(row)),
    "tres-per-node": ("TRES_PER_NODE", lambda row, _: f"gres:gpu:{row.gpus}" if row.gpus else "N/A"),
    "gres": ("TRES_PER_NODE", lambda row, _: f"gres:gpu:{row.gpus}" if row.gpus else "N/A"),
}
# what Slurm knows and nobody says here
_WITHOUT = """
    admin_comment allocnodes allocsid associd boardspernode burstbuffer burstbufferstate clusterfeature container
    cpufreq cpus-per-tres deadline delayboot derivedec hetjobid hetjoboffset hetjobidset lastschedeval mcslabel
    mem-per-tres mintime network ntperboard ntpercore ntpernode ntpersocket origin originraw pendingtime power
    preempttime profile reboot reqswitch resizetime shared siblingsactive siblingsactiveraw siblingsviable
    siblingsviableraw sockets sperboard system_comment suspendtime threads time tres-bind tres-freq tres-per-job
    tres-per-socket tres-per-step tres-per-task wait4switch prefer mincpus cores
"""


def tres_of(row: JobRow) -> str:
    """Return what a job holds, as Slurm writes trackable resources."""
    memory = [f"mem={row.memory}M"] if row.memory else []
    gpus = [f"gres/gpu={row.gpus}"] if row.gpus else []
    return ",".join([f"cpu={row.cores}", *memory, f"node={row.node_count}", f"billing={row.cores}", *gpus])


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a line; without a value it is the text between fields."""

    header: str
    value: Value | None
    width: int = 0
    right: bool = False
    suffix: str = ""

    def written(self, text: str) -> str:
        """Write a header or a value."""
        text = one_line(text)
        return (fitted(text, self.width, right=self.right) if self.width else text) + self.suffix


_FIELD = re.compile(r"%(\.?)([0-9]*)([A-Za-z%])", re.ASCII)


def read_format(text: str) -> list[Field]:
    """Read what -o says.

    >>> [(one.header, one.width, one.right) for one in read_format("%.5i|%t")]
    [('JOBID', 5, True), ('|', 0, False), ('ST', 0, False)]
    """
    result, at = list[Field](), 0
    for part in _FIELD.finditer(text):
        if part.start() > at:
            result.append(Field(text[at : part.start()], None))
        at = part.end()
        if part[3] not in LETTERS:
            raise CommandError(f"squeue: error: Invalid job format specification: {part[3]}\n")
        header, value = LETTERS[part[3]]
        result.append(Field(header, value, width_of(part[2], "squeue"), part[1] == "."))
    return result + ([Field(text[at:], None)] if at < len(text) else [])


def width_of(text: str, command: str) -> int:
    """Read the width of a field."""
    if len(text) > 6 or int(text or 0) > MOST_WIDTH:
        raise CommandError(f"{command}: error: Invalid job format specification: {text[:20]}\n")
    return int(text or 0)


_LONG_FIELD = re.compile(r"([^:]*)(?::(\.?)([0-9]*)(.*))?", re.DOTALL | re.ASCII)


def read_long_format(text: str) -> list[Field]:
    r"""Read what -O says: fields are 20 wide unless a width or a suffix is said.

    >>> [(one.header, one.width, one.suffix) for one in read_long_format("JobID,State:\x1f,Name:.9")]
    [('JOBID', 20, ''), ('STATE', 0, '\x1f'), ('NAME', 9, '')]
    """
    result = []
    for part in filter(None, text.split(",")):
        said = _LONG_FIELD.fullmatch(part)
        name = said[1].strip().lower() if said else ""
        known = LETTERS.get(NAMES.get(name, "")) or _OTHERS.get(name)
        if known is None and name in _WITHOUT.split():
            known = (name.upper().replace("-", "_"), _nothing)
        if said is None or known is None:
            raise CommandError(f"squeue: error: Invalid job format specification: {part[:60]}\n")
        suffix, width = said[4] or "", width_of(said[3] or "", "squeue")
        result.append(Field(*known, width or (0 if suffix else 20), said[2] == ".", suffix))
    return result


def _nothing(*_: Any) -> str:
    return "N/A"


_KEYS: Mapping[str, Callable[[JobRow], Any]] = {
    "a": lambda row: row.account,
    "A": lambda row: row.number,
    "C": lambda row: row.cores,
    "D": lambda row: row.node_count,
    "e": lambda row: row.end or 0.0,
    "F": lambda row: row.array,
    "i": lambda row: row.number,
    "j": lambda row: row.name,
    "l": lambda row: row.limit,
    "L": lambda row: row.limit - row.run,
    "M": lambda row: row.run,
    "N": lambda row: row.node_list,
    "p": lambda row: row.priority,
    "P": lambda row: row.partition,
    "q": lambda row: row.qos,
    "Q": lambda row: row.priority,
    "r": lambda row: row.reason,
    "R": lambda row: row.reason,
    "S": lambda row: row.start or float("inf"),
    "t": lambda row: SHORT[row.state],
    "T": lambda row: row.state,
    "u": lambda row: row.user,
    "U": lambda row: row.uid,
    "V": lambda row: row.submit,
    "Z": lambda row: row.folder,
}


def ordered(rows: Sequence[JobRow], text: str) -> list[JobRow]:
    """Return rows in the order that -S says: "P,t,-p"; the first key is the strongest."""
    result = sorted(rows, key=lambda row: row.number, reverse=True)
    for key in reversed([part for part in text.split(",") if part]):
        letter = key.lstrip("+-")
        if letter not in _KEYS and letter not in LETTERS:
            raise CommandError(f"squeue: error: Invalid sort specification: {letter[:20]}\n")
        if letter in _KEYS:
            result.sort(key=_KEYS[letter], reverse=key.startswith("-"))
    return result


def states_wanted(words: GivenWords, environment: Mapping[str, str]) -> set[str]:
    """Return the states that are shown: those that have not ended unless others are asked for."""
    request = words.words("states") or [one for one in environment.get("SQUEUE_STATES", "").split(",") if one]

    def wrong(word: str) -> CommandError:
        valid = ",".join(SHORT)
        text = f"squeue: error: Invalid job state specified: {word[:40]}\n"
        return CommandError(f"{text}squeue: error: Valid job states include: {valid}\n")

    return read_states(request, wrong) if request else set(ACTIVE)


def written(rows: Sequence[JobRow], words: GivenWords, environment: Mapping[str, str], zone: int) -> str:
    """Write what squeue prints."""
    default = LONG if "long" in words else DEFAULT
    if "Format" in words or ("format" not in words and environment.get("SQUEUE_FORMAT2")):
        fields = read_long_format(words.last("Format") or environment["SQUEUE_FORMAT2"])
    else:
        fields = read_format(words.last("format") or environment.get("SQUEUE_FORMAT") or default)
    lines = [] if "noheader" in words else ["".join(one.written(one.header) for one in fields)]
    lines += [
        "".join(one.written(one.value(row, zone) if one.value else one.header) for one in fields)
        for row in ordered(rows, words.last("sort") or environment.get("SQUEUE_SORT") or "P,t,-p")
    ]
    return "".join(f"{line}\n" for line in lines)
