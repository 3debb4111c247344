"""What Slurm's commands print → states, reasons to wait, ends, and expected waits. Pure: text in, values out.

A row that cannot be read concerns its own job only; reasons stand last in a row, because they may hold anything.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime

from rainbow.agent.executors.interface import Final, Phase, Row
from rainbow.agent.executors.run import Ended, Pending, Result, RunId, signal_name
from rainbow.jobspec.hostlist import expand_hosts

ROWS = "%i|%T|%S|%Q|%Y|%P|%N|%r"  # of squeue: id, state, start, priority, planned nodes, partition, nodes, reason
COLUMNS = ROWS.count("|")
WHOSE = "\x1f{0}\x1f%u\x1f%V\x1f%k"  # after a row, and a word that is new each time: user, submit time, comment
QUEUE = "%i|%P|%Q"
ACCOUNTED = "JobID,State,ExitCode,DerivedExitCode,Reason,User,Submit,Comment"
FIRST = "+0"  # ends the id of a job's first component, by which the whole job is called
MOST_NODES = 100_000
NONE = frozenset({"", "N/A", "(null)", "None", "none", "Unknown"})


PHASES: Mapping[str, Phase] = {
    **dict.fromkeys(
        (
            *("PENDING", "CONFIGURING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
            *("RESV_DEL_HOLD", "LAUNCH_FAILED"),
        ),
        Phase.WAITING,
    ),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING"), Phase.RUNNING),
    **dict.fromkeys(("SUSPENDED", "STOPPED"), Phase.HELD),
    **dict.fromkeys(
        ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "NODE_FAIL", "BOOT_FAIL"),
        Phase.ENDED,
    ),
    **dict.fromkeys(("PREEMPTED", "REVOKED"), Phase.ENDED),
}


def phase_of(state: str) -> Phase:
    """Return what a state of Slurm's is to a task."""
    return PHASES.get(state.partition(" ")[0].rstrip("+"), Phase.UNKNOWN)


def read_rows(text: str, word: str = "") -> tuple[dict[str, Row], list[str]]:
    """Read what `squeue -o ROWS + WHOSE` prints; return the rows by id, and the lines that cannot be read.

    A comment may have lines, and they may look like rows: only Slurm knows the word that a row of its own has.

    >>> read_rows("7|PENDING|N/A|10|(null)|batch||Nodes required | anything\\nodd")[1]
    ['odd']
    """
    rows, odd = dict[str, Row](), list[str]()
    for line in filter(str.strip, text.split("\n")):
        said, _, whose = line.partition(f"\x1f{word}\x1f")
        parts = [part.strip() for part in said.split("|", COLUMNS)]
        if len(parts) != COLUMNS + 1 or not parts[0] or not parts[3].isdecimal():
            odd.append(line[:200])
            continue
        job, state, start, priority, planned, partition, nodes, reason = ("" if p in NONE else p for p in parts)
        user, submitted, comment = [*whose.split("\x1f", 2), "", "", ""][:3] if word else ("", "", "")
        job = job.removesuffix(FIRST)
        if user or job not in rows:
            where, whose_it_is = (planned, partition, nodes, reason), (user, submitted, mark_in(comment))
            rows[job] = Row(job, state, phase_of(state), start, int(priority), *where, *whose_it_is)
    return rows, odd


MARK = "rainbow="


def mark_in(comment: str) -> str:
    """Return the mark that ends a comment; empty: it has none.

    >>> mark_in("two words rainbow=j/0/1/f00d")
    'rainbow=j/0/1/f00d'
    """
    word = comment.rstrip().rpartition(" ")[2]
    return word if word.startswith(MARK) else ""


def read_queue(text: str) -> dict[str, list[int]]:
    """Read what `squeue -t PD -o QUEUE` prints; return all pending priorities by partition, the least first."""
    results: dict[str, list[int]] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 3 and parts[2].strip().isdecimal():
            for partition in parts[1].split(","):
                results.setdefault(partition.strip(), []).append(int(parts[2]))
    return {partition: sorted(priorities) for partition, priorities in results.items()}


def owner(line: str) -> tuple[str, str]:
    """Read a job and its user from a line of `squeue -o '%i|%u'`; components have the number of the first.

    >>> owner("7+1|ann")
    ('7', 'ann')
    """
    job, _, user = line.partition("|")
    return job.partition("+")[0], user


# ── why it waits ──

CLASSES: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (name, re.compile(pattern), words)
    for name, pattern, words in (
        ("stuck", r"Partition(Time|Node)Limit|PartitionConfig|(Bad)?Constraints$|DependencyNeverSatisfied", ""),
        ("stuck", r"(Reservation)?Invalid|ReservationDeleted|(QOS|Account)NotAllowed|Job's \w+ not permitted", ""),
        ("stuck", r"(Assoc|QOS)Max\w*Per(Job|Node)|QOSMin|MaxMemPerLimit", ""),
        ("turn", r"Priority$|SchedDefer", "for its turn"),
        ("room", r"(BurstBuffer)?Resources$|Nodes required|ReqNodeNotAvail|NodeDown", "for room"),
        ("room", r"Partition(Down|Inactive)|Power(NotAvail|Reserved)|FrontEndDown|Cleaning|Prolog", "for room"),
        ("room", r"Reservation$", "for its reservation"),
        ("limit", r"Assoc|QOS|Licenses|JobArrayTaskLimit|Max\w+PerAccount|AccountingPolicy", "for a limit"),
        ("time", r"BeginTime", "for its begin time"),
        ("dependency", r"Dependency", "for another job"),
        ("held", r"JobHeld|JobHoldMaxRequeue|job requeued in|launch failed requeued", "until it is released"),
    )
)


def class_of(reason: str) -> tuple[str, str]:
    """Return what kind of reason this is, and in words what the job waits for; of an unknown one nothing."""
    for name, pattern, words in CLASSES:
        if pattern.match(reason):
            return name, words
    return "", ""


def waiting(row: Row, queue: Mapping[str, Sequence[int]], query: str) -> Pending:
    """Say why a job has not begun. `queue`: sorted priorities of pending jobs; `query`: when it was looked up.

    >>> waiting(Row("7", "PENDING", Phase.WAITING, "2026-11-22T06:44:00", 10, "n[1-2]", "batch", "", "Priority"),
    ...         {"batch": [10, 11, 12]}, "06:31").text
    'Slurm job 7 waits on partition batch for its turn: Priority; priority 10, 3rd of 3; planned for 06:44 on n[1-2]'
    """
    kind, words = class_of(row.reason)
    others = queue.get(row.partition, ())
    rank = 1 + len(others) - bisect_right(others, row.priority)  # a thousand ask, each second
    text = f"Slurm job {row.id} waits on partition {row.partition or '?'}"
    if kind == "stuck":
        text = f"Slurm job {row.id} cannot start on partition {row.partition or '?'} as it is"
    text += f"{words and ' '}{words}" + (f": {row.reason}" if row.reason else "")
    if others and kind in ("turn", "room"):
        text += f"; priority {row.priority}, {_ordinal(rank)} of {len(others)}"
    if row.start and kind in ("turn", "room", "time"):
        text += f"; planned for {row.start[11:16] or row.start}" + (f" on {row.planned}" if row.planned else "")
    facts: dict[str, str | float | bool | None] = {
        "native_id": row.id,
        "reason": row.reason or None,
        "class": kind or None,
        "partition": row.partition or None,
        "priority": row.priority,
        "rank": rank if others else None,
        "pending": len(others) or None,
        "expected_start": _with_zone(row.start) if row.start else None,
        "planned_nodes": row.planned[:200] or None,
        "asked_at": query or None,
    }
    code = f"site:{row.reason.partition(',')[0] or row.state}"[:100]
    return Pending(code, text[:300], {key: value for key, value in facts.items() if value is not None})


def _with_zone(time: str) -> str:
    """Write a time that Slurm prints in the zone of this machine with its offset."""
    try:
        return datetime.fromisoformat(time).astimezone().isoformat()
    except ValueError:
        return time


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"


# ── how it ended ──


# between a job's name and its command, which may hold anything, as may comments and the call of sbatch after it
_FIELDS = re.compile(r" UserId=([^ ]*)\(\d+\) GroupId=.*?(?= Command=| Comment=|$)", re.S)
_FIELD = re.compile(r"(?<= )(JobState|Reason|ExitCode|DerivedExitCode|SubmitTime|Partition|NodeList)=(\S*)")
_COMMENT = re.compile(r" Comment=(.*?) +(?=StdErr=|$)", re.S)


def read_record(text: str) -> Final | None:
    """Read what `scontrol -o show job ID` prints; None if that is no record of a job that is over."""
    final = identity(text)
    return final if final and PHASES.get(final.state) is Phase.ENDED else None


def identity(text: str) -> Final | None:
    """Read whose job a record is of, and its state, whether it is over or not; None: that is no record."""
    fields, comment = _FIELDS.search(text), _COMMENT.search(text)
    answer: dict[str, str] = {}
    for name, value in _FIELD.findall(fields[0] if fields else text.partition(" Comment=")[0]):
        answer.setdefault(name, value)
    if "JobState" not in answer:
        return None
    code, derived = (_codes(answer.get(name, "")) for name in ("ExitCode", "DerivedExitCode"))
    whose = fields[1] if fields else "", answer.get("SubmitTime", ""), mark_in(comment[1]) if comment else ""
    where = ("" if (said := answer.get(name, "")) in NONE else said for name in ("Partition", "NodeList"))
    return Final(answer["JobState"], code, derived, answer.get("Reason", ""), "", *whose, *where)


_IDS = re.compile(r"JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\d+) )?")


def read_records(text: str) -> dict[str, Final]:
    """Read what `scontrol -o show job` prints; return the jobs that are over, elements of arrays as ID_INDEX.

    A job of two records is left out: one of them may be a line of a comment.

    >>> read_records("JobId=9 ArrayJobId=8 ArrayTaskId=2 JobState=COMPLETED Reason=None ExitCode=0:0")["8_2"].state
    'COMPLETED'
    """
    results: dict[str, Final | None] = {}
    for line in text.splitlines():
        if ids := _IDS.match(line):
            job = f"{ids[2]}_{ids[3]}" if ids[2] else ids[1]
            results[job] = None if job in results else read_record(line)
    return {job: final for job, final in results.items() if final}


def read_accounted(text: str, delimiter: str = "|") -> dict[str, Final]:
    """Read what `sacct -D -X -n -P -o ACCOUNTED` prints; return the jobs that are over, the last life of each."""
    result: dict[str, Final] = {}
    for line in text.splitlines():
        parts = line.split(delimiter, 7)
        job, state, code, derived, reason, user, submitted, comment = [*parts, *[""] * 8][:8]
        word, _, by = state.partition(" by ")
        if PHASES.get(word) is Phase.ENDED:
            whose = user, submitted, mark_in(comment)
            result[job.removesuffix(FIRST)] = Final(word, _codes(code), _codes(derived), reason, by, *whose)
    return result


def reserved(said: str) -> list[str]:
    """Return the nodes of a reservation, by what `scontrol -o show reservation NAME` prints.

    >>> reserved("ReservationName=r StartTime=x Nodes=n[1-2] NodeCnt=2")
    ['n1', 'n2']
    """
    result = re.search(r" Nodes=(\S+)", said)
    return expand_hosts(result[1], MOST_NODES) or [] if result else []


BOOTED = re.compile(r"^BOOT_TIME\s*=\s*(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.M)


def booted(said: str) -> float | None:
    """Return since when the controller runs, by what `scontrol show config` prints."""
    result = BOOTED.search(said)
    return datetime.fromisoformat(result[1]).timestamp() if result else None


def _codes(text: str) -> tuple[int, int]:
    code, _, number = text.partition(":")
    return (int(code) if code.isdecimal() else 0, int(number) if number.isdecimal() else 0)


NO_OUTPUT = 53  # what Slurm says where a number of a signal stands: the output file could not be opened
OUT_OF_MEMORY = 125


def ended(run: RunId, job: str, final: Final, *, ours: bool) -> Ended:
    """Return the end of a run by what Slurm says of its job; `ours`: we have asked for its end."""
    code, number = final.code
    if ours or final.state == "CANCELLED":
        by = f" by user {final.by}" if final.by else ""
        result = Result.STOPPED if ours else Result.CANCELED
        return Ended(run, result, detail=f"canceled{'' if ours else ' at the site'}{by}: Slurm job {job}")
    if final.state == "OUT_OF_MEMORY" or OUT_OF_MEMORY in (number, final.derived[1]):
        detail = f"Slurm job {job} needed more memory than it asked for"
        return Ended(run, Result.EXITED, code or 137, detail=detail, cause="memory")
    if final.state == "TIMEOUT":
        return Ended(run, Result.TIMED_OUT, detail=f"Slurm job {job} ran longer than its limit")
    if final.state in ("NODE_FAIL", "BOOT_FAIL"):
        return Ended(run, Result.LOST, detail=f"a node of Slurm job {job} failed")
    if final.state == "PREEMPTED":
        return Ended(run, Result.STOPPED, detail=f"Slurm job {job} was preempted")
    if final.state == "DEADLINE":
        return Ended(run, Result.FAILED, detail=f"Slurm job {job} met its deadline before it ran", cause="deadline")
    if number == NO_OUTPUT:
        return Ended(run, Result.FAILED, detail=f"the output file of Slurm job {job} could not be opened")
    if final.state == "COMPLETED" or code or number:  # the code is believed before the reason
        detail = f"killed by {signal_name(number)}" if number else ""
        return Ended(run, Result.EXITED, 128 + number if number else code, detail=detail)
    return Ended(run, Result.FAILED, detail=f"Slurm job {job} ended as {final.state}: {final.reason or 'no reason'}")


# ── how long jobs would wait: the variables that selection reads ──
#
# expected_wait_N      seconds until a job of N cores would start, as Slurm plans, of the sizes that jobs have had
#                      within an hour: what nobody asks for costs no number of a job
# expected_wait_low    the least of them
# expected_wait_high   the most of that and of the time in which all cores work off what is queued
# expected_wait        the middle of both; selection reads the one of the job's own size
# cores_free, cores_taken, nodes_free, pending_jobs, pending_core_seconds
#
# What is not known is left out: it is not 0.

SIZE = "expected_wait_{}"
PLANNED = re.compile(r"Job \d+ to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) using (\d+) processors")
CORES = "%C"  # of sinfo: allocated/idle/other/total
PENDING = "%C|%l"  # of squeue: cores and limit
LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def planned(said: str, now: datetime) -> tuple[int, float] | None:
    """Return the cores of a job and in how many seconds it would start, by what `sbatch --test-only` says.

    >>> planned("sbatch: Job 12 to start at 2026-11-22T17:30:30 using 4 processors", datetime(2026, 11, 22, 17, 30))
    (4, 30.0)
    """
    result = PLANNED.search(said)
    if result is None:
        return None
    return int(result[2]), max(0.0, (datetime.fromisoformat(result[1]) - now).total_seconds())


def cores(said: str) -> tuple[int, int, int]:
    """Return the cores that are free, taken, and in all, by what `sinfo -o CORES` says of each group of nodes."""
    rows = [[int(part) for part in line.split("/")] for line in said.split() if re.fullmatch(r"\d+(/\d+){3}", line)]
    taken, free, _, whole = (sum(row[k] for row in rows) for k in range(4)) if rows else (0, 0, 0, 0)
    return free, taken, whole


def backlog(said: str) -> tuple[int, float | None]:
    """Return how many jobs wait, and for how many core-seconds at most; None where one has no limit.

    >>> backlog("4|1:00:00\\n2|30:00\\n"), backlog("1|UNLIMITED\\n")
    ((2, 18000.0), (1, None))
    """
    rows = [line.partition("|")[::2] for line in said.split() if line.partition("|")[0].isdecimal()]
    limits = [_seconds(limit) for _, limit in rows]
    if None in limits:
        return len(rows), None
    return len(rows), float(sum(int(count) * (limit or 0) for (count, _), limit in zip(rows, limits, strict=True)))


def _seconds(limit: str) -> int | None:
    result = LIMIT.fullmatch(limit)
    if result is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in result.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def variables(
    waits: Mapping[int, float], counted: tuple[int, int, int], queued: tuple[int, float | None]
) -> dict[str, float]:
    """Return the variables; `waits` are {cores: seconds}.

    >>> variables({1: 0.0}, (1, 1, 2), (1, 60.0))["expected_wait_high"]
    30.0
    """
    free, taken, whole = counted
    jobs, work = queued
    answer: dict[str, float] = {"cores_free": free, "cores_taken": taken, "pending_jobs": jobs}
    if work is not None:
        answer["pending_core_seconds"] = work
    answer |= {SIZE.format(size): wait for size, wait in waits.items()}
    if waits:
        low = min(waits.values())
        high = max(low, work / whole) if work is not None and whole else low
        answer |= {"expected_wait_low": low, "expected_wait_high": high, "expected_wait": (low + high) / 2}
    return answer
