"""`rainbow policy test` and `diff`, `job replay`: on files, and against a server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from tests.conftest import ADMIN, REGISTRATION, SHARED, grid
from tests.conftest import jobspec as spec
from tests.support.live import rainbow_at

ROOT = Path(__file__).parents[3]
POLICIES = ROOT / "policies"
REFUSED = yaml.load((ROOT / "tests/cases/selection/trials-refused.yaml").read_text(), yaml.CSafeLoader)
FIRST = (
    "scheduler: {algorithms: {selection: {name: constraint, options: {priorities: [{priority: 1, steps: [%s]}]}}}}"
)


def run(*words: str | Path, **environment: str) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "110", **environment})
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def config(folder: Path, name: str, steps: str) -> Path:
    path = folder / name
    path.write_text(FIRST % steps)
    return path


# ── test ──


def test_founding_configuration_is_that_of_the_founding_text() -> None:
    if not SHARED.exists():
        pytest.skip("the shared texts are not beside this repository")
    text = (SHARED / "seeds/rainbow-algorithms.md").read_text()
    match = re.search(r"```yaml\n(scheduler:.*?)```", text, re.DOTALL)
    assert match
    assert (POLICIES / "founding.yaml").read_text() == match.group(1)


def test_founding_cases_come_out_as_expected() -> None:
    result = run("policy", "test", POLICIES / "founding-test.yaml")
    assert result.exit_code == Exit.OK, result.output
    assert result.stdout.rstrip().endswith("6 cases, 0 failed")


def test_what_is_ignored_of_a_configuration_is_told_where_it_is_compared(tmp_path: Path) -> None:
    other = tmp_path / "f2.yaml"
    other.write_text("policy: priority\nsettings: {order: f2}\n")
    decisions = ("--decisions", POLICIES / "decisions.json")
    for words in (("diff", other, other, *decisions), ("test", POLICIES / "founding-test.yaml", "--config", other)):
        assert f"rainbow: warning: {other}: ignored policy: unknown key" in run("policy", *words).stderr


def test_cases_under_another_configuration_say_what_came_instead() -> None:
    result = run("policy", "test", POLICIES / "founding-test.yaml", "--config", POLICIES / "cheapest.yaml")
    assert result.exit_code == Exit.ERROR
    assert "expected carol to be chosen 900 to 1100 times of 3000, got 3000" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("expect", "fault"),
    [
        ({"cluster": "b"}, "expected b, got a"),
        ({"cluster": None}, "expected no cluster, got a"),
        ({"one_of": ["b", 5]}, "a was chosen, not one of b, 5"),
        ({"reason": "priority 2"}, "the reason is 'priority 1: first of 2"),
        ({"dropped": {"b": "x"}}, "b: it was not dropped"),
        ({"dropped": {"c": "price"}}, "c: priority 1, calc: twice: cost is not known"),
        ({"warnings": ["uninformed"]}, "warning 'uninformed' not found"),
        ({"values": {"a": {"twice": "2/3"}}}, "twice of a is 2, not 2/3"),
        ({"values": {"a": {"thrice": 3}}}, "thrice of a is None, not 3"),
        ({"values": {"a": {"twice": "1/0"}}}, "twice of a is 2, not 1/0"),
        ({"wins": {"b": [1, 1]}}, "expected b to be chosen 1 to 1 times of 1, got 0"),
    ],
)
def test_every_expectation_can_fail(tmp_path: Path, expect: dict[str, Any], fault: str) -> None:
    config(tmp_path, "c.yaml", "{calc: twice=2*cost}, {sort_ascending: twice}")
    states: dict[str, Any] = {"a": {"cost": 1}, "b": {"cost": 2}, "c": {}}
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"config": "c.yaml", "states": states, "cases": [{"expect": expect}]}))
    result = run("policy", "test", file, "-o", "json")
    assert result.exit_code == Exit.ERROR
    assert any(one.startswith(fault) for one in json.loads(result.stdout)["cases"][0]["faults"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in REFUSED])
def test_file_of_cases_that_cannot_be_read_is_refused_with_the_place(tmp_path: Path, case: dict[str, Any]) -> None:
    config(tmp_path, "c.yaml", "{select: first}")
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(case["file"]))
    result = run("policy", "test", file)
    assert result.exit_code == Exit.ERROR
    assert case["says"] in result.stderr
    assert not case["pointer"] or case["pointer"] in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[", "\0", "a: &a [*a]", "{cases: [{}], config: nowhere.yaml}", "1"])
def test_hostile_file_of_cases_gives_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "test.yaml"
    file.write_text(text)
    result = run("policy", "test", file)
    assert result.exit_code == Exit.ERROR
    assert len(result.stderr.splitlines()) == 1


# ── diff ──


def test_diff_of_recorded_decisions_names_the_moved_and_the_sums() -> None:
    files = POLICIES / "founding.yaml", POLICIES / "cheapest.yaml", "--decisions", POLICIES / "decisions.json"
    results = json.loads(run("policy", "diff", *files, "-o", "json").stdout)
    recorded = {one["id"]: one for one in json.loads((POLICIES / "decisions.json").read_text())["decisions"]}
    assert results["decisions"] == len(recorded) == 10
    assert all(one["old"] == recorded[one["id"]]["cluster"] for one in results["moved"]), "OLD is what was in force"
    assert {one["new"] for one in results["moved"]} == {"carol"}
    sums = results["sums"]["build_cost"]
    assert sums["new"]["sum"] < sums["old"]["sum"]
    cost = {"alpha": 3 * 200, "bravo": 5 * 150, "carol": 64}
    by_hand = sum(cost[one["cluster"]] * one["parameters"]["seconds_per_gb"] / 3600 for one in recorded.values())
    assert sums["old"] == {"sum": pytest.approx(by_hand, rel=1e-12), "jobs": 10}


@pytest.mark.parametrize(
    "text",
    [
        *("[", "5", "{}", '{"decisions": 5}', "[5]", '[{"candidates": 5}]', '[{"candidates": [{}]}]'),
        *('[{"candidates": [], "states": {"a": 5}}]', '[{"candidates": [], "seed": []}]'),
        *('[{"candidates": [{"cluster": "a", "totals": []}]}]', '[{"candidates": [], "parameters": 1}]'),
    ],
)
def test_decisions_that_are_none_give_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "d.json"
    file.write_text(text)
    result = run("policy", "diff", POLICIES / "founding.yaml", POLICIES / "founding.yaml", "--decisions", file)
    assert result.exit_code == Exit.ERROR
    assert len(result.stderr.splitlines()) == 1


# ── against a server ──


@pytest.fixture
def url(tmp_path: Path) -> Any:
    with rainbow_at(tmp_path) as served:
        yield served


def test_recorded_jobs_are_replayed_and_compared(url: str, tmp_path: Path) -> None:
    from rainbow.client import Client

    with Client(url, REGISTRATION) as client:
        answers = [
            client.register_cluster(name, grid(4, 2), state={"cost": cost, "nodes_free": 4})
            for name, cost in (("oak", 2), ("elm", 1))
        ]
    dearest = config(tmp_path, "old.yaml", "{calc: price=cost*10}, {sort_descending: price}")
    cheapest = config(tmp_path, "new.yaml", "{calc: price=cost*10}, {sort_ascending: price}")
    selector = yaml.load(dearest.read_text(), yaml.CSafeLoader)["scheduler"]["algorithms"]["selection"]
    with Client(url, [one["token"] for one in answers]) as client:
        made = [client.submit(spec(), selector=selector)["id"] for _ in range(3)]
    tokens = ",".join(one["token"] for one in answers)
    shown = run("job", "replay", made[0], "--url", url, "--token", tokens)
    assert shown.exit_code == Exit.OK, shown.output
    assert "replay matches the recorded decision exactly" in shown.stdout
    result = run("policy", "diff", dearest, cheapest, "--url", url, "--token", ADMIN, "-o", "json")
    results = json.loads(result.stdout)
    assert results["moved"] == [{"id": one, "old": "oak", "new": "elm", "step": "select first"} for one in made[::-1]]
    assert results["sums"]["price"] == {"old": {"sum": 60.0, "jobs": 3}, "new": {"sum": 30.0, "jobs": 3}}
    limited = run("policy", "diff", dearest, cheapest, "--url", url, "--token", ADMIN, "--limit", "2", "-o", "json")
    assert json.loads(limited.stdout)["decisions"] == 2
    beside = run("policy", "diff", cheapest, "--url", url, "--token", ADMIN, "-o", "json")  # the server's own rules
    assert {one["new"] for one in json.loads(beside.stdout)["moved"]} <= {"elm"}
    assert json.loads(beside.stdout)["sums"]["price"]["new"] == {"sum": 30.0, "jobs": 3}
    refused = run("policy", "diff", dearest, cheapest, "--url", url, "--token", tokens)
    assert refused.exit_code == Exit.NOT_ALLOWED


def test_state_set_takes_the_founding_texts_example(url: str, tmp_path: Path) -> None:
    from rainbow.client import Client

    file = tmp_path / "state.json"
    file.write_text('{\n    "cost_per_node_hour": 3,\n    "nodes_free": 20,\n    "memory_per_node": 200,\n}\n')
    with Client(url, REGISTRATION) as client:
        secret = client.register_cluster("oak", grid(2, 2))["secret"]
    result = run("state", "set", file, "--cluster", "oak", "--url", url, "--secret", secret, "-o", "json")
    assert json.loads(result.stdout) == {"cost_per_node_hour": 3, "nodes_free": 20, "memory_per_node": 200}
