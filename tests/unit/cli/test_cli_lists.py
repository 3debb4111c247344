"""Lists that users of Slurm know: `rainbow jobs`, `history` and `nodes`, their columns and forms."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from rainbow.cli.commands.jobs import _waits_or_runs
from rainbow.cli.exit_codes import Exit
from rainbow.cli.output import printer
from rainbow.cli.output.columns import expected, lasting
from rainbow.cli.slurm.history import _summed
from tests.support.agent_sites import until
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

NOON = 1_767_268_800.0  # of 2026-01-01, UTC


@pytest.fixture(scope="module")
def worked(server: tuple[str, dict[str, str], object]) -> dict[str, str]:
    """Return an array of which an element failed, a job that runs on one node, and one that waits for it."""
    from tests.support.shell import variables_of  # the fixture of a test is made anew for each

    url, answer, saved = server
    shell = Shell(saved.parent, url, answer["token"], answer["secret"], variables_of(url, saved))  # type: ignore[attr-defined]

    def made(*words: str) -> str:
        return shell("submit", "--parsable", *words).stdout.strip()

    array = made("-J", "sweep", "-a", "1,3,4", "--", "sh", "-c", "exit $(({index} - 1))")
    shell("job", "wait", array)
    runs = made("-J", "runs", "-N", "1", "-c", "2", "--", "sleep", "60")
    until(lambda: shell.json("job", "show", runs)["state"] == "RUNNING")
    waits = made("-J", "waits", "-d", f"afterok:{runs}", "--", "true")
    return {"array": array, "runs": runs, "waits": waits, "runs id": shell.json("job", "show", runs)["id"]}


def rows(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_top_shows_what_is_free_and_what_takes_most(shell: Shell, worked: dict[str, str]) -> None:
    said = rows(shell("top").stdout)
    assert said[0] == ["CLUSTER", "NODES", "CORES FREE/ALL", "MEMORY FREE/ALL", "GPUS FREE/ALL", "RUNNING", "WAITING"]
    assert said[1][0] == "oak"
    jobs = [row[0] for row in said if row[0] in worked.values()]
    assert jobs == [worked["runs"], worked["waits"]]
    assert shell("top", "-n", "2", "-d", "0.2").stdout.count("CLUSTER  NODES") == 2


def test_figures_of_the_page_are_shown_by_commands(shell: Shell, worked: dict[str, str]) -> None:
    """The fleet, its jobs counted, a worker, the kinds of workers, and what ran where."""
    until(lambda: shell.json("fleet", "--jobs-by", "reason").get("dependency") == 1)
    assert shell.json("fleet", "--jobs-by", "state") == {"RUNNING": 1, "WAITING": 1}
    assert shell.json("fleet")["first"][0]["name"] == "oak"
    said = shell("fleet").stdout
    assert re.search(r"^clusters +1 *$", said, re.M)
    assert re.search(r"^oak +up +1 +1 +\S", said, re.M)
    [held] = [one for one in shell.json("worker", "timeline", "oak")["jobs"] if one[0] == worked["runs id"]]
    assert held == [worked["runs id"], "runs"]
    [name] = [row[0] for row in rows(shell("worker", "timeline", "oak").stdout) if row[1] == worked["runs id"]]
    assert shell.json("worker", "show", name, "--cluster", "oak")["tasks"][0]["job"] == worked["runs id"]
    assert "core 2" in shell("worker", "show", name, "--cluster", "oak").stdout
    [_, kind] = rows(shell("worker", "kinds", "oak").stdout)
    assert kind[1:5] == ["2", "1", "1", "0"]


def test_jobs_shows_what_is_active(shell: Shell, worked: dict[str, str]) -> None:
    """With elapsed time, nodes and reason, as squeue; what has ended is not shown unless asked for."""
    until(lambda: (shell.json("jobs")[0]["wait"] or {}).get("reason") == "dependency")
    [titles, waits, runs] = rows(shell("jobs").stdout)
    assert titles == [
        "JOB",
        "NAME",
        "STATE",
        "CLUSTER",
        "USER",
        "ELAPSED",
        "NODES",
        "REASON OR NODES",
    ]
    assert waits[:3] == [worked["waits"], "waits", "WAITING"]
    assert waits[-1] == f"waits for job {worked['runs id']} to complete"
    assert runs[:3] == [worked["runs"], "runs", "RUNNING"]
    assert re.fullmatch(r"00:00:\d\d", runs[5])
    assert re.fullmatch(r"on n[01]", runs[-1])
    for words in (("--all",), ("--state", "failed")):
        assert worked["array"] in [row[0] for row in rows(shell("jobs", *words).stdout)]


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ("-n sw*", []),
        ("-n sw* -a", ["array"]),
        ("-n sw* -n run? -n runs -t running,failed", ["runs", "array"]),
        ("-t failed -t running", ["runs", "array"]),
        ("--reason dependency", ["waits"]),
        ("-u nobody -a", []),
        ("--account none --all", []),
        ("--cluster oak -n *a*s", ["waits"]),
        ("-S now-1hour -n s*", ["array"]),
        ("-S now+1hour", ["waits", "runs"]),
        ("-j {array},{runs}", ["runs", "array"]),
        ("-j {array}", ["array"]),
    ],
)
def test_jobs_are_chosen_by_all_filters(shell: Shell, worked: dict[str, str], words: str, listed: list[str]) -> None:
    names = shell("jobs", "-o", "name", *words.format(**worked).split()).stdout.split()
    assert names == [worked[key] for key in listed]


def test_a_suspended_job_is_listed_as_such_and_its_time_stands_still() -> None:
    job = {
        "state": "RUNNING",
        "summary": {
            "started_at": "2026-01-01T00:00:00Z",
            "paused": 10.0,
            "counts": {"SUSPENDED": 1},
            "workers": ["n0"],
        },
        "suspended_at": "2026-01-01T00:01:00Z",
        "wait": {"reason": "suspended", "text": "1 task suspended"},
    }
    assert _waits_or_runs(job) == "1 task suspended"
    assert [lasting(job, NOON), lasting({**job, "suspended_at": None}, NOON)] == [50.0, 43_190.0]


def test_history_of_one_job_leaves_out_what_it_was_suspended() -> None:
    task = {
        "state": "COMPLETED",
        "started_at": "2026-01-01T00:00:00Z",
        "exit_code": 0,
        "placement": {},
        "paused": 6.0,
    }
    assert lasting(_summed({"tasks": [task], "ended_at": "2026-01-01T00:00:16Z"}), NOON) == 10.0


def test_amounts_are_in_words_and_what_lies_outside_workers_is_named() -> None:
    placement = {"n0": {"core": 1, "memory": 16 * 10**9}, "": {"license": 2}}
    held = printer.held({"placement": placement}, {"memory": "B"})
    assert held == {"n0": {"core": 1, "memory": "16 GB"}, "cluster-wide": {"license": 2}}


def test_what_is_expected_is_said_with_its_year_and_not_once_it_is_over() -> None:
    running = {"how": "running", "age": 1.0, "end": "2026-01-01T11:59:59Z"}
    assert expected(running, NOON) == ""
    assert expected({**running, "end": "2027-06-30T12:00:00Z"}, NOON).startswith("expected to end 2027-06-30 ")


def test_an_array_is_one_line(shell: Shell, worked: dict[str, str]) -> None:
    [line] = [row for row in rows(shell("jobs", "--all").stdout) if row[0] == worked["array"]]
    assert line[-1] == "3/3, 2 failed"
    elements = shell("history", "-j", worked["array"], "--elements", "-P", "--format", "jobid,exitcode").stdout
    assert elements == "JobID|ExitCode\n" + "".join(f"{worked['array']}_{k}|{k - 1}:0\n" for k in (1, 3, 4))
    assert shell.code("history", "--elements") is Exit.USAGE


def test_history_has_the_columns_of_sacct(shell: Shell, worked: dict[str, str]) -> None:
    names = "JobID,JobName,State,ExitCode,Elapsed,NNodes,User,Submit,Start,End,NodeList,NTasks"
    results = list(csv.DictReader(io.StringIO(shell("history", "--format", names, "-o", "csv").stdout)))
    by_name = {row["JobName"]: row for row in results}
    array, waits = by_name["sweep"], by_name["waits"]
    assert (array["State"], array["ExitCode"], array["NTasks"]) == ("FAILED", "3:0", "3")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", array["End"])
    assert (waits["State"], waits["Start"], waits["NodeList"]) == ("PENDING", "Unknown", "None assigned")
    assert by_name["runs"]["State"] == "RUNNING"
    assert [
        row["JobName"] for row in csv.DictReader(io.StringIO(shell("history", "-s", "failed", "-o", "csv").stdout))
    ]
    assert rows(shell("history", "-n", "-S", "now+1hour").stdout)[0][1] == "waits"
    assert shell("history", "-n", "-E", "now-1hour").stdout == ""
    assert shell.code("history", "-S", "someday") is Exit.USAGE


def test_lists_are_written_as_asked(shell: Shell, worked: dict[str, str]) -> None:
    cut = shell("history", "-n", "--format", "jobname%4,state%-9", "--limit", "1").stdout
    assert cut == "wai+ PENDING\n"
    assert shell.json("history", "-j", worked["array"], "--format", "jobid") == [{"JobID": worked["array"]}]
    assert {"summary", "id"} <= set(json.loads(shell("jobs", "-o", "json").stdout)[0])
    assert shell("jobs", "--noheader").stdout.startswith(worked["waits"])
    wrong = shell("jobs", "--format", "jobi")
    assert wrong.exit_code == Exit.USAGE
    assert "did you mean jobid?" in wrong.stderr
    assert shell.code("jobs", "--format", "jobid%x") is Exit.USAGE


def test_nodes_says_what_is_free_by_state(shell: Shell, worked: dict[str, str]) -> None:
    results = {row["state"]: row for row in shell.json("nodes")}
    assert {state: (row["nodes"], row["free"]["core"]) for state, row in results.items()} == {
        "idle": (1, 4),
        "mixed": (1, 2),
    }
    drawn = rows(shell("nodes").stdout)
    assert drawn[0] == ["CLUSTER", "STATE", "NODES", "CORES FREE/ALL", "MEMORY FREE/ALL", "GPUS FREE/ALL", "NODELIST"]
    assert [row[1:4] for row in drawn[1:]] == [["idle", "1", "4/4"], ["mixed", "1", "2/4"]]
    assert [row["state"] for row in shell.json("nodes", "-t", "mixed")] == ["mixed"]
    shell("job", "cancel", worked["runs"])
    until(lambda: [row["state"] for row in shell.json("nodes")] == ["idle"])
    shell("worker", "drain", "--cluster", "oak", "n1")
    until(lambda: {row["state"]: row["free"]["core"] for row in shell.json("nodes")} == {"idle": 4, "drained": 0})
    assert "n1      DRAINED" in shell("worker", "list", "--cluster", "oak").stdout  # it holds nothing any more
    shell("worker", "reinstate", "--cluster", "oak", "n1")


def test_attach_follows_a_job_to_its_end_and_exits_with_its_code(shell: Shell) -> None:
    job = shell.json("submit", "--", "sh", "-c", "echo here; sleep 1; exit 5")["id"]
    said = shell("attach", job[:16])
    assert (said.stdout, said.exit_code) == ("here\n", 5)
