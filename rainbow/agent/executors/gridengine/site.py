"""Grid Engine as a site: the words of its commands, and what they print. Pure: text in, values out.

qstat -xml -u '*'   the state of every job and element; qstat -xml -j '*' has keys (JB_account), errors and reasons
qacct -j            how jobs ended; one that was deleted before it began is in no account
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from xml.etree import ElementTree

from rainbow.agent.executors.gridengine.call import PE, read_mark, words_for
from rainbow.agent.executors.interface import Cores, Final, Phase, Question, Row
from rainbow.agent.executors.run import Ended, Pending, Result, Run, RunId, signal_name

BETWEEN = "\f"  # the answers of two commands
MOST_ELEMENTS = 100_000
ALL_JOBS, ALL_RECORDS = ("qstat", "-xml", "-u", "*"), ("qstat", "-xml", "-j", "*")
NUMBER = re.compile(r"^(\d+)(\.\d+-\d+:\d+)?$", re.M)
STUCK = "Eqw"
TIMED = re.compile(r"^[\d/]+ [\d:]+ \[[\d:]+\]: (error: )?")
NO_FOLDER = re.compile(r"can't chdir|changing into working directory|chdir")
SCALE = 100_000  # priorities are fractions


class GridEngine:
    """The site of the executor `gridengine`; tested on a real one."""

    name = "Grid Engine"

    def submit(self, run: Run, mark: str) -> Question[str]:
        """Ask for a run; what only the executor knows is in executor.py."""
        return Question(("qsub", "-terse", *words_for(run, PE)[0]), number_of)

    def jobs(self, accounts: Sequence[str]) -> Question[tuple[dict[str, Row], list[str]]]:
        """Ask for all jobs, elements of arrays one by one."""
        return Question(ALL_JOBS, read_rows, also=(ALL_RECORDS,))

    def queue(self) -> Question[dict[str, list[int]]]:
        """Ask for the priorities of what waits: there is one order for all queues."""

        def read(said: str) -> dict[str, list[int]]:
            return {"": sorted(row.priority for row in rows_in(said) if row.phase is Phase.WAITING)}

        return Question(("qstat", "-xml", "-s", "p", "-u", "*"), read)

    def over(self) -> Question[dict[str, Final]]:
        """Ask nothing: ends are asked for one by one."""
        return Question((), lambda _: {})

    def final(self, job: str) -> Sequence[Question[dict[str, Final]]]:
        """Ask the queue, where a job in error stays, then the accounts."""
        number = job.partition("_")[0]

        def stuck(said: str) -> dict[str, Final]:
            result = details(said).get(number)
            if result is None or not result.fault:
                return {}
            return {
                job: Final(STUCK, reason=result.fault, user=result.user, submitted=result.submitted, mark=result.mark)
            }

        return (
            Question(("qstat", "-xml", "-j", number), stuck),
            Question(("qacct", "-j", number), read_accounts),
        )

    def recorded(self, accounts: Sequence[str], since: float) -> Question[dict[str, Final]]:
        """Ask the accounts for all that has ended since a time."""
        when = datetime.fromtimestamp(since).strftime("%Y%m%d%H%M")
        return Question(("qacct", "-b", when, "-j", "*"), read_accounts)

    def booted(self) -> Question[float | None]:
        """Ask nothing: a qmaster that restarts has its jobs on disk."""
        return Question((), lambda _: None)

    def forgets(self, begun: bool) -> bool:
        """Return whether a job had not begun: what is deleted before is in no account."""
        return not begun

    def cancel(self, job: str, *, pending: bool = False) -> tuple[str, ...]:
        """Return the words of qdel, which cannot be told to leave alone what has begun."""
        number, _, element = job.partition("_")
        return () if pending else ("qdel", number, *(("-t", element) if element else ()))

    def record(self, job: str) -> Question[Final | None]:
        """Ask whose a job is."""
        number = job.partition("_")[0]

        def read(said: str) -> Final | None:
            result = details(said).get(number)
            return (
                None if result is None else Final("", user=result.user, submitted=result.submitted, mark=result.mark)
            )

        return Question(("qstat", "-xml", "-j", number), read)

    def cores_of(self, job: str) -> Question[str]:
        """Ask nothing: what is bound, Grid Engine binds."""
        return Question((), str)

    def node(self, record: str) -> Question[str]:
        """Ask nothing."""
        return Question((), str)

    def users(self) -> Question[dict[str, str]]:
        """Ask whose the jobs are that have not ended."""
        return Question(ALL_JOBS, lambda said: {row.id: row.user for row in rows_in(said)})

    def nodes(self) -> Question[list[str]]:
        """Ask for all hosts."""

        def read(said: str) -> list[str]:
            names = (host.get("name", "") for host in _parsed(said).iter("host"))
            return sorted(name for name in names if name not in ("", "global"))

        return Question(("qhost", "-xml"), read)

    def cores(self) -> Question[Cores]:
        """Ask for the slots of all queues."""

        def read(said: str) -> Cores:
            rows = list(_parsed(said).iter("cluster_queue_summary"))
            free, taken, whole = (sum(_whole(row, key) for row in rows) for key in ("available", "used", "total"))
            return free, taken, whole

        return Question(("qstat", "-xml", "-g", "c"), read)

    def planned(self, said: str) -> tuple[int, float] | None:
        """Read nothing: `qsub -w v` says whether a job fits, and not when it would start."""

    def waiting(self, row: Row, queue: Mapping[str, Sequence[int]], query: str) -> Pending:
        """Say why a job has not begun."""
        kind, words = class_of(row)
        others = queue.get("", ())
        rank = 1 + sum(priority > row.priority for priority in others)
        text = f"Grid Engine job {row.id} waits {words}" + (f": {row.reason}" if row.reason else "")
        if others and kind in ("turn", "room"):
            text += f"; rank {rank} of {len(others)}"
        facts: dict[str, str | float | bool | None] = {
            "native_id": row.id,
            "reason": row.reason or None,
            "class": kind,
            "priority": row.priority,
            "rank": rank if others else None,
            "pending": len(others) or None,
            "asked_at": query or None,
        }
        answer = {key: value for key, value in facts.items() if value is not None}
        return Pending(f"site:{row.state}"[:100], text[:300], answer)

    def ended(self, run: RunId, job: str, final: Final, *, ours: bool) -> Ended:
        """Say how a run ended."""
        code, number = final.code
        if ours or final.state == "CANCELLED":
            result = Result.STOPPED if ours else Result.CANCELED
            return Ended(run, result, detail=f"canceled{'' if ours else ' at the site'}: Grid Engine job {job}")
        if final.state == "TIMEOUT":
            return Ended(run, Result.TIMED_OUT, detail=f"Grid Engine job {job} ran longer than its limit")
        if final.state in ("COMPLETED", "FAILED"):
            detail = f"killed by {signal_name(number)}" if number else ""
            return Ended(run, Result.EXITED, 128 + number if number else code, detail=detail)
        cause = "directory" if NO_FOLDER.search(final.reason) else ""
        return Ended(run, Result.FAILED, detail=f"Grid Engine job {job} was not started: {final.reason}", cause=cause)


def number_of(said: str) -> str:
    """Return the number of the job that `qsub -terse` tells; empty: none. A site's wrapper may say more.

    >>> number_of("52\\n"), number_of("quota 3 GB\\n53.2-6:2\\n"), number_of("no\\n")
    ('52', '53', '')
    """
    results = {number for number, _ in NUMBER.findall(said)}
    return results.pop() if len(results) == 1 else ""


def refusal_of(said: str) -> str:
    """Return why a call is refused, as Grid Engine says it.

    >>> refusal_of('Unable to run job: unknown resource "nosuch"\\nExiting.\\n')
    'unknown resource "nosuch"'
    """
    lines = [line.removeprefix("Unable to run job: ").strip() for line in said.splitlines()]
    plain = [line for line in lines if line and line != "Exiting." and not line.startswith("verification:")]
    return "; ".join(plain)[:300] or "no reason"


# ── jobs there are ──


def _parsed(said: str) -> ElementTree.Element:
    if "<!ENTITY" in said:
        return ElementTree.Element("none")
    try:
        return ElementTree.fromstring(said.strip())  # noqa: S314 - without entities there is no bomb
    except ElementTree.ParseError:
        return ElementTree.Element("none")


def _whole(row: ElementTree.Element, key: str) -> int:
    said = (row.findtext(key) or "").strip()
    return int(said) if said.isdecimal() else 0


def phase_of(state: str) -> Phase:
    """Return what a state of Grid Engine's is to a task.

    >>> [phase_of(one).value for one in ("r", "t", "qw", "hqw", "Rq", "s", "T", "dr", "Eqw")]
    ['running', 'running', 'waiting', 'waiting', 'waiting', 'suspended', 'suspended', 'running', 'ended']
    """
    if "E" in state:
        return Phase.ENDED
    if "q" in state:
        return Phase.WAITING
    if {"s", "S", "T"} & set(state):
        return Phase.HELD
    return Phase.RUNNING if {"r", "t", "d", "R"} & set(state) else Phase.UNKNOWN


def elements(text: str) -> Iterator[int]:
    """Yield the elements of an array as qstat lists them.

    >>> list(elements("2,4-8:2"))
    [2, 4, 6, 8]
    """
    remaining = MOST_ELEMENTS
    for part in text.split(","):
        result = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if result:
            numbers = range(int(result[1]), int(result[2] or result[1]) + 1, max(1, int(result[3] or 1)))[:remaining]
            remaining -= len(numbers)
            yield from numbers


def rows_in(said: str) -> Iterator[Row]:
    """Yield jobs and elements of `qstat -xml -u '*'`; whose key they have, it does not say."""
    for job in _parsed(said).iter("job_list"):
        number, state = (job.findtext("JB_job_number") or "").strip(), (job.findtext("state") or "").strip()
        if not number.isdecimal():
            continue
        queue, _, host = (job.findtext("queue_name") or "").strip().partition("@")
        priority = 0
        with suppress(ValueError):
            priority = int(float(job.findtext("JAT_prio") or 0) * SCALE)
        start = (job.findtext("JAT_start_time") or "").strip()
        submitted = (job.findtext("JB_submission_time") or "").strip()
        ids = [f"{number}_{element}" for element in elements(job.findtext("tasks") or "")] or [number]
        user = (job.findtext("JB_owner") or "").strip()
        for one in ids:
            where = (queue, host, "", user, submitted)
            yield Row(one, state, phase_of(state), start, priority, "", *where)


class Details:
    """What `qstat -xml -j` says of a job: whose it is, its key, why it waits, what went wrong."""

    def __init__(self, job: ElementTree.Element) -> None:
        self.user = (job.findtext("JB_owner") or "").strip()
        self.mark = read_mark((job.findtext("JB_account") or "").strip())
        at = (job.findtext("JB_submission_time") or "").strip()
        self.submitted = datetime.fromtimestamp(int(at[:10])).isoformat() if at.isdecimal() else ""
        self.name = (job.findtext("JB_job_name") or "").strip()
        faults = (text.strip() for one in job.iter("JAT_message_list") for text in one.itertext())
        self.fault = next((_plain(text) for text in faults if text and not text.isdecimal()), "")
        self.reasons: list[str] = []


def _plain(fault: str) -> str:
    """Return an error without the time and the process it begins with.

    >>> _plain("11/26/2026 23:07:12 [1001:23205]: error: can't chdir to /x: No such file or directory")
    "can't chdir to /x: No such file or directory"
    """
    return TIMED.sub("", fault)


def details(said: str) -> dict[str, Details]:
    """Return what is said of jobs, by number."""
    tree, result = _parsed(said), dict[str, Details]()
    for job in tree.iterfind("djob_info/element"):
        number = (job.findtext("JB_job_number") or "").strip()
        if number.isdecimal():
            result[number] = Details(job)
    for message in tree.iterfind("messages/element/SME_message_list/element"):
        text = (message.findtext("MES_message") or "").strip()
        numbers = message.find("MES_job_number_list")
        for one in numbers.itertext() if numbers is not None else ():
            if (job_details := result.get(one.strip())) and text:
                job_details.reasons.append(text)
    return result


def read_rows(said: str) -> tuple[dict[str, Row], list[str]]:
    """Read both answers about all jobs; return the rows by id, and what cannot be read."""
    first, _, second = said.partition(BETWEEN)
    known, rows = details(second), dict[str, Row]()
    for row in rows_in(first):
        one = known.get(row.id.partition("_")[0])
        if one is None or one.user != row.user:
            continue  # it came or went between the two answers
        reason = "; ".join(one.reasons)
        answers = (row.start, row.priority, row.planned, row.partition, row.nodes, reason, row.user, one.submitted)
        rows[row.id] = Row(row.id, row.state, row.phase, *answers, one.mark)
    return rows, [] if _parsed(first).tag == "job_info" else [first[:200]]


CLASSES = (
    ("time", "execution time not reached", "for its begin time"),
    ("dependency", "job dependencies", "for another job"),
    ("limit", "max_|quota|concurren|array tasks may be started", "for a limit"),
    ("room", "cannot run|queue instance|offers only|no suitable|PE", "for room"),
)


def class_of(row: Row) -> tuple[str, str]:
    """Return what kind of reason a job has to wait, and in words what it waits for."""
    for kind, pattern, words in CLASSES:
        if re.search(pattern, row.reason):
            return kind, words
    return ("held", "until it is released") if "h" in row.state else ("turn", "for its turn")


# ── how jobs ended ──

SEPARATOR = re.compile(r"^={10,}$", re.M)
NOT_FOUND = re.compile(r"not found")
LIMITED, AFTER_JOB = 37, 100  # what Grid Engine writes as `failed`: a limit was enforced; the job was killed


def read_accounts(said: str) -> dict[str, Final]:
    """Read records of qacct; of a job that ran several times the last counts."""
    result: dict[str, Final] = {}
    for part in SEPARATOR.split(said)[1:]:
        answer = dict(_pairs(part.splitlines()))
        number, element = answer.get("jobnumber", ""), answer.get("taskid", "")
        if number.isdecimal():
            result[f"{number}_{element}" if element.isdecimal() else number] = _final(answer)
    return result


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(" ")
        yield name, value.strip()


def _final(answer: Mapping[str, str]) -> Final:
    failed, _, words = answer.get("failed", "").partition(":")
    why, code = _number(failed), _number(answer.get("exit_status", "").partition("(")[0])
    submitted = ""
    with suppress(ValueError):
        submitted = datetime.strptime(answer.get("qsub_time", ""), "%a %b %d %H:%M:%S %Y").isoformat()
    whose = (answer.get("owner", ""), submitted, read_mark(answer.get("account", "")))
    where = (answer.get("qname", ""), answer.get("hostname", ""))
    number = code - 128 if code > 128 else 0
    if why == LIMITED:
        return Final("TIMEOUT", (0, number), (0, 0), words.strip(), "", *whose, *where)
    if why in (0, AFTER_JOB):
        state = "COMPLETED" if not (why or code) else "FAILED"
        return Final(state, (0, number) if number else (code, 0), (0, 0), words.strip(), "", *whose, *where)
    return Final(STUCK, (0, 0), (0, 0), words.strip() or failed, "", *whose, *where)


def _number(text: str) -> int:
    said = text.strip()
    return int(said) if said.isdecimal() else 0
