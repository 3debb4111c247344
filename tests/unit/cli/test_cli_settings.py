"""Settings of scheduling policies as files: checked without a server and by one, a fault with its line and column."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.client import Client
from tests.conftest import REGISTRATION, SHARED, grid, jobspec
from tests.support.live import rainbow_at
from tests.support.policies.ducc_classes import as_yaml

REFUSED = yaml.load(
    (Path(__file__).parents[2] / "cases" / "fair_share" / "refused.yaml").read_text(), yaml.CSafeLoader
)
EXAMPLE = Path(__file__).parents[3] / "policies" / "fair-share.yaml"


def run(*words):
    result = CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "200"})
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def written(folder, text):
    path = folder / "settings.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["text"].replace("\n", " "))
def test_fault_is_told_in_one_line_with_its_place(tmp_path, case):
    result = run("policy", "check", written(tmp_path, case["text"]), "--policy", "fair_share")
    assert result.exit_code == Exit.ERROR
    assert len(result.stderr.splitlines()) == 1
    assert f"line {case['line']}, column {case['column']}" in result.stderr
    assert case["pointer"] in result.stderr


def test_every_class_file_the_original_refuses_is_refused_here_too(tmp_path):
    if not SHARED.exists():
        pytest.skip("the recorded class files are not beside this repository")
    rows = [json.loads(line) for line in (SHARED / "conformance/ducc/config.jsonl").read_text().splitlines()]
    refused = [row for row in rows if not row["ok"]]
    assert len(refused) > 10
    for row in refused:
        result = run("policy", "check", written(tmp_path, as_yaml(row["text"])), "--policy", "fair_share")
        assert result.exit_code == Exit.ERROR, row["id"]
        assert "line " in result.stderr, row["id"]


def test_a_plan_under_what_a_file_supposes_and_a_fault_with_its_place_in_the_file(tmp_path):
    with rainbow_at(tmp_path) as url, Client(url, REGISTRATION) as client:
        secret = client.register_cluster("oak", grid(2, 2))["secret"]
        requests = ("scheduler", "plan", "oak", "--url", url, "--secret", secret, "-o", "json", "--with")
        wide = run(*requests, written(tmp_path, yaml.safe_dump({"jobs": [{"jobspec": jobspec()}]})))
        assert wide.exit_code == 0, wide.stderr
        [wait] = json.loads(wide.stdout)["waits"]
        assert wait["job"]
        wrong = run(*requests, written(tmp_path, "workers:\n  n0: ASLEEP\n"))
    assert wrong.exit_code == Exit.ERROR
    assert "line 2" in wrong.stderr
    assert "/workers/n0" in wrong.stderr


def test_example_is_taken_and_shown_with_inheritance_resolved():
    shown = json.loads(run("policy", "check", EXAMPLE, "-o", "json").stdout)
    assert shown["policy"] == "fair_share"
    assert shown["settings"]["classes"]["low"]["policy"] == "FAIR_SHARE"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("policy: load_based\nsettings: {rounding: none}", "line 2, column 22", "/settings/rounding"),
        ("policy: fair_share\nsettings: 7", "line 2, column 11", "settings are a mapping"),
        (
            "quantum: {amount: 1}",
            "",
            "does not name its policy: pass --policy NAME or add `policy: NAME` to the file",
        ),
        ("policy: 7\nsettings: {}", "line 1, column 9", "policy must be the name of a scheduling policy"),
        (
            "policy: load_based\nrounding: classic",
            "line 2, column 11",
            "a file with `policy` may contain only policy and settings",
        ),
    ],
)
def test_files_that_name_their_policy_or_should(tmp_path, text, place, told):
    result = run("policy", "check", written(tmp_path, text))
    assert result.exit_code == Exit.ERROR
    assert place in result.stderr
    assert told in result.stderr


def test_policy_nobody_knows_is_wrong_usage(tmp_path):
    assert run("policy", "check", written(tmp_path, "{}"), "--policy", "none").exit_code == Exit.USAGE


def test_configuration_with_a_policy_nobody_knows_is_refused_where_it_stands(tmp_path):
    result = run("config", "check", written(tmp_path, "scheduler:\n  policy: fairshare\n"))
    assert result.exit_code == Exit.ERROR
    assert "line 2, column 11" in result.stderr


def test_server_takes_settings_from_yaml_and_its_refusal_has_a_place_in_the_file(tmp_path):
    with rainbow_at(tmp_path) as url:
        secret = Client(url, REGISTRATION).register_cluster("oak", grid(2, 2))["secret"]
        there = ("oak", "--url", url, "--secret", secret)
        good = written(tmp_path, "quantum: {type: core}\nclasses:\n  all: {policy: FAIR_SHARE, default: true}\n")
        assert run("scheduler", "set", *there, "--policy", "fair_share", "--settings", good).exit_code == Exit.OK
        bad = written(tmp_path, "quantum: {type: core}\nclasses:\n  all: {policy: FAIR_SHARE, default: 1}\n")
        result = run("scheduler", "set", *there, "--settings", bad)
        assert result.exit_code == Exit.ERROR
        assert "line 3, column 38" in result.stderr
        assert Client(url, secret).scheduler("oak")["settings"]["classes"]["all"]["default"] is True
        shown = run("scheduler", "show", *there).stdout
        assert re.search(r"^nodepools +machines +open +quanta +used +free +largest_free", shown, re.MULTILINE)
        assert re.search(r"^default +2 +0 +4 +0 +0 +0", shown, re.MULTILINE)


def test_the_file_that_is_checked_is_the_file_that_is_set(tmp_path):
    with rainbow_at(tmp_path) as url:
        secret = Client(url, REGISTRATION).register_cluster("oak", grid(2, 2))["secret"]
        there = ("oak", "--url", url, "--secret", secret)
        classes = "  classes:\n    all: {policy: FAIR_SHARE, default: %s}\n"
        text = f"policy: fair_share\nsettings:\n  quantum: {{type: core}}\n{classes}"
        whole = written(tmp_path, text % "true")
        assert run("policy", "check", whole).exit_code == Exit.OK
        assert run("scheduler", "set", *there, "--settings", whole).exit_code == Exit.OK
        assert Client(url, secret).scheduler("oak")["policy"] == "fair_share"
        assert run("scheduler", "set", *there, "--policy", "fair_share", "--settings", whole).exit_code == Exit.OK
        for words in (("scheduler", "set", *there, "--settings", whole), ("policy", "check", whole)):
            result = run(*words, "--policy", "priority")
            assert result.exit_code == Exit.USAGE
            assert "contains settings for policy fair_share, not priority" in result.stderr
        result = run("scheduler", "set", *there, "--settings", written(tmp_path, text % 1))
        assert result.exit_code == Exit.ERROR
        assert "line 5, column 40" in result.stderr


def test_a_cluster_is_registered_with_the_file_that_is_checked(tmp_path):
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(grid(2, 2)))
    file = written(tmp_path, "policy: load_based\nsettings: {rounding: classic}\n")
    with rainbow_at(tmp_path) as url:
        words = ("cluster", "register", graph, "--name", "oak", "--url", url, "--secret", REGISTRATION)
        made = json.loads(run(*words, "--policy-settings", file, "-o", "json").stdout)
        assert Client(url, made["secret"]).scheduler("oak")["settings"]["rounding"] == "classic"
