"""What Slurm prints, read row by row: recorded texts of Slurm 22.05, and rows that hold anything."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.agent.executors.interface import Final, Phase, Row
from rainbow.agent.executors.run import Result
from rainbow.agent.executors.slurm import status

RUN = ("t", 1)
SQUEUE = """\
1|RUNNING|2026-11-22T17:11:45|4294901759|(null)|batch|n[0001-0004]|None
2|PENDING|2026-11-22T17:12:45|4294901758|n[0001-0004]|batch||Resources
3|PENDING|N/A|0|(null)|batch||Nodes required for job are DOWN, DRAINED or reserved for higher jobs
4|PENDING|N/A|11140|(null)|batch,short||ReqNodeNotAvail, May be reserved for other job
5|OUT_OF_MEMORY|2026-11-22T17:11:45|1|(null)|batch|n1|OutOfMemory
6|PENDING|N/A|0|(null)|batch||job requeued in held state
"""
RECORD = (
    "JobId=1 JobName=a b UserId=root(0) JobState={state} Reason={reason} Dependency=(null) Requeue=1 ExitCode={code}"
    " DerivedExitCode={derived} RunTime=00:00:03 WorkDir=/tmp Comment=hi ExitCode=0:0  StdErr=/dev/null Power="
)


def test_each_row_is_read_whatever_its_reason() -> None:
    rows, odd = status.read_rows(SQUEUE)
    assert odd == []
    assert {job: row.phase for job, row in rows.items()} == {
        "1": Phase.RUNNING,
        **dict.fromkeys("2346", Phase.WAITING),
        "5": Phase.ENDED,
    }
    assert rows["3"].reason.startswith("Nodes required for job are DOWN, DRAINED")
    assert (rows["2"].start, rows["2"].planned, rows["2"].priority) == (
        "2026-11-22T17:12:45",
        "n[0001-0004]",
        4294901758,
    )


@given(st.text(), st.lists(st.text(alphabet="|x 1\n", max_size=30), max_size=5))
def test_foreign_rows_with_any_text_change_nothing_for_others(reason: str, lines: list[str]) -> None:
    ours = "77|PENDING|N/A|5|(null)|batch||Priority"
    text = "\n".join([*lines, f"78|WHATEVER|?|9|||x|{reason}", ours])
    assert status.read_rows(text)[0]["77"] == Row("77", "PENDING", Phase.WAITING, "", 5, "", "batch", "", "Priority")


def test_state_of_a_newer_slurm_concludes_nothing() -> None:
    rows, _ = status.read_rows("1|TELEPORTING|N/A|1|(null)|batch||None")
    assert rows["1"].phase is Phase.UNKNOWN


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Priority", "turn"),
        ("Resources", "room"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "room"),
        ("ReqNodeNotAvail, May be reserved for other job", "room"),
        ("Reservation", "room"),
        ("Licenses", "limit"),
        ("AssocGrpCpuLimit", "limit"),
        ("QOSMaxJobsPerUserLimit", "limit"),
        ("JobArrayTaskLimit", "limit"),
        ("BeginTime", "time"),
        ("Dependency", "dependency"),
        ("DependencyNeverSatisfied", "stuck"),
        ("JobHeldUser", "held"),
        ("JobHeldAdmin", "held"),
        ("job requeued in held state", "held"),
        ("PartitionTimeLimit", "stuck"),
        ("PartitionNodeLimit", "stuck"),
        ("BadConstraints", "stuck"),
        ("InvalidAccount", "stuck"),
        ("SomethingNew", ""),
    ],
)
def test_reason_to_wait_is_told_with_its_class_and_as_it_is(reason: str, kind: str) -> None:
    answer = status.waiting(
        Row("7", "PENDING", Phase.WAITING, "", 5, "", "batch", "", reason), {"batch": [5, 9]}, "06:31"
    )
    assert answer.facts.get("class", "") == kind
    assert (answer.facts["reason"], answer.facts["rank"]) == (reason, 2)
    assert answer.code == f"site:{reason.partition(',')[0]}"[:100]
    assert reason in answer.text


@pytest.mark.parametrize(
    ("state", "code", "derived", "reason", "result", "exit_code", "cause"),
    [
        ("COMPLETED", "0:0", "0:0", "None", Result.EXITED, 0, ""),
        ("FAILED", "3:0", "0:0", "NonZeroExitCode", Result.EXITED, 3, ""),
        ("FAILED", "0:11", "0:0", "JobLaunchFailure", Result.EXITED, 139, ""),
        ("FAILED", "127:0", "0:0", "NonZeroExitCode", Result.EXITED, 127, ""),
        ("FAILED", "0:53", "0:0", "None", Result.FAILED, None, ""),
        ("OUT_OF_MEMORY", "0:125", "0:0", "OutOfMemory", Result.EXITED, 137, "memory"),
        ("FAILED", "1:0", "0:125", "NonZeroExitCode", Result.EXITED, 1, "memory"),
        ("TIMEOUT", "0:0", "0:0", "TimeLimit", Result.TIMED_OUT, None, ""),
        ("DEADLINE", "1:0", "0:0", "DeadLine", Result.FAILED, None, "deadline"),
        ("NODE_FAIL", "0:0", "0:0", "NodeDown", Result.LOST, None, ""),
        ("BOOT_FAIL", "0:0", "0:0", "None", Result.LOST, None, ""),
        ("PREEMPTED", "0:0", "0:0", "None", Result.STOPPED, None, ""),
        ("CANCELLED", "0:0", "0:0", "None", Result.CANCELED, None, ""),
        ("FAILED", "0:0", "0:0", "BadConstraints", Result.FAILED, None, ""),
    ],
)
def test_each_end_is_told_as_it_was(
    state: str, code: str, derived: str, reason: str, result: Result, exit_code: int | None, cause: str
) -> None:
    final = status.read_record(RECORD.format(state=state, code=code, derived=derived, reason=reason))
    assert final is not None
    end = status.ended(RUN, "1", final, ours=False)
    assert (end.result, end.exit_code, end.cause) == (result, exit_code, cause)
    [accounted] = status.read_accounted(f"1|{state}|{code}|{derived}|{reason}\n").values()
    assert status.ended(RUN, "1", accounted, ours=False) == end


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "NEW_ONE"])
def test_record_of_a_job_that_is_not_over_is_no_end(state: str) -> None:
    assert status.read_record(RECORD.format(state=state, code="0:0", derived="0:0", reason="None")) is None


def test_who_canceled_a_job_at_its_site_is_told() -> None:
    [final] = status.read_accounted("9|CANCELLED by 0|0:0|0:0|None\n").values()
    assert status.ended(RUN, "9", final, ours=False).detail == "canceled at the site by user 0: Slurm job 9"
    assert status.ended(RUN, "9", final, ours=True).result is Result.STOPPED


MARK = "rainbow=j/0/1/aa"
ROW = "{}|RUNNING|N/A|1|(null)|batch|n1|None\x1fw0rd\x1fann\x1f2026-11-22T17:12:45\x1f{}"


def test_job_is_known_by_its_user_and_the_mark_that_ends_its_comment() -> None:
    rows, _ = status.read_rows(f"{ROW.format(7, f'a | b {MARK}')}\n{ROW.format(8, f'{MARK} not its end')}", "w0rd")
    assert {job: (row.user, row.mark) for job, row in rows.items()} == {"7": ("ann", MARK), "8": ("ann", "")}


@pytest.mark.parametrize("word", ["w0rd", "guess"])
def test_comment_that_looks_like_the_row_of_another_job_is_no_row_of_it(word: str) -> None:
    """Squeue prints comments as they are, lines and all; the word of each question nobody knows before."""
    forged = ROW.format(7, MARK).replace("RUNNING", "COMPLETED").replace("w0rd", "guess")
    text = "\n".join([ROW.format(8, f"x\n{forged}"), ROW.format(7, MARK)]).replace("w0rd", word)
    rows, _ = status.read_rows(text, "w0rd")
    assert (rows["7"].mark, rows["7"].phase) == ((MARK, Phase.RUNNING) if word == "w0rd" else ("", Phase.ENDED))


def test_record_of_a_job_that_another_record_names_too_is_not_believed() -> None:
    """The comment of a stranger has a line like a record: neither of both is taken."""
    record = "JobId=7 JobName=a UserId=ann(1001) GroupId=x JobState=COMPLETED Reason=None ExitCode=0:0 Comment="
    assert list(status.read_records(f"{record}{MARK}  StdErr=/x")) == ["7"]
    assert status.read_records(f"JobId=9 JobState=RUNNING Comment=x\n{record}{MARK}\n{record}{MARK}") == {}


def test_record_and_accounts_say_whose_a_job_is() -> None:
    record = (
        "JobId=7 UserId=ann(1001) GroupId=x JobState=RUNNING Reason=None ExitCode=0:0 SubmitTime=2026-11-22T17:12:45"
    )
    result = status.identity(f"{record} Command=/x rainbow=other Comment=two words {MARK} StdErr=/x StdIn=/y")
    assert result == Final("RUNNING", reason="None", user="ann", submitted="2026-11-22T17:12:45", mark=MARK)
    assert status.identity("slurm_load_jobs error: Invalid job id specified") is None
    said = f"7|COMPLETED|0:0|0:0|None|ann|2026-11-22T17:12:45|a|b {MARK}\n8|RUNNING|0:0|0:0|None|ann||\n"
    assert status.read_accounted(said) == {"7": Final("COMPLETED", (0, 0), (0, 0), "None", "", *found_of(result))}


def found_of(final: Final | None) -> tuple[str, str, str]:
    assert final is not None
    return final.user, final.submitted, final.mark


def test_controller_says_since_when_it_runs() -> None:
    at = status.booted("AuthInfo = (null)\nBOOT_TIME               = 2026-11-26T19:10:34\nX = 1\n")
    assert at == datetime(2026, 11, 26, 19, 10, 34).timestamp()
    assert status.booted("no such line") is None


def test_end_without_a_code_or_a_signal_names_the_state() -> None:
    end = status.ended(RUN, "1", Final("REVOKED", reason="moved"), ours=False)
    assert (end.result, end.detail) == (Result.FAILED, "Slurm job 1 ended as REVOKED: moved")
