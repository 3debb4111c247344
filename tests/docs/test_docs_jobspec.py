"""docs/jobspec.md says what the code does: its examples are read and match, its tables are tried."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import rainbow
from rainbow.cli.main import topics
from rainbow.jobspec.dialects.common import SYSTEM
from rainbow.jobspec.validation import schema
from rainbow.scheduling import gangs
from rainbow.scheduling.priority import model
from tests.conftest import Api
from tests.docs.test_examples import read

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "jobspec.md").read_text()
OTHERS = (ROOT / "docs" / "coming-from-others.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE + OTHERS, re.S)
BY_POLICY = set(re.findall(r'\(options, "(\w+)"', inspect.getsource(model)))
FOUR = "{type: core, replicas: 4}"


@pytest.fixture(scope="module")
def clusters() -> list[rainbow.Cluster]:
    return [read(ROOT / "graphs" / name) for name in ("heron", "juniper", "willow")]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in a text whose first cell is a word of some program, or empty."""
    lines = [line.replace(r"\|", "\0") for line in text.splitlines() if re.match(r"\| [`|]", line)]
    return [[cell.strip().replace("\0", "|") for cell in line[1:-1].split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


OF_SLOTS, OF_TASKS = section("How often does a command start?").split("A task changes")
STARTS = [(code(row[0])[0], int(row[2])) for row in rows(OF_SLOTS)]
TASKS = [(code(row[0])[0], int(row[1]), int(row[2])) for row in rows(OF_TASKS)]


def test_there_is_enough_to_try() -> None:
    assert len(EXAMPLES) >= 7
    assert len(STARTS) == 7
    assert len(TASKS) == 5


@pytest.mark.parametrize("text", EXAMPLES)
def test_example_is_read_whole_and_some_cluster_can_run_it(text: str, clusters: list[rainbow.Cluster]) -> None:
    if "tasks:" not in text and "task:" not in text:
        pytest.skip("a part of a jobspec")
    job = rainbow.parse_jobspec(text)
    assert job.warnings == ()
    assert any(verdict.matched for verdict in rainbow.match(job, clusters))


def offered(api: Api, resource: str, task: str) -> list[dict[str, Any]]:
    """What an agent of willow is told to run."""
    graph = yaml.load((ROOT / "graphs" / "willow" / "cluster.json").read_text(), yaml.CSafeLoader)
    willow = api.register("willow", graph)
    api.good("POST", "/v1/jobs", f"resources: {{work: {resource}}}\ntasks: [{task}]\n", willow.token)
    willow.say("heartbeat")
    return willow.take()


@pytest.mark.parametrize(("resource", "starts"), STARTS)
def test_command_starts_as_often_as_the_page_says(api: Api, resource: str, starts: int) -> None:
    (offer,) = offered(api, resource, "{command: [x], resources: work}")
    assert offer["processes"] == starts


@pytest.mark.parametrize(("task", "tasks", "starts"), TASKS)
def test_task_starts_its_slots_as_often_as_the_page_says(api: Api, task: str, tasks: int, starts: int) -> None:
    limits = replace(api.service.settings.limits, processes_per_core=2)
    api.service.settings = replace(api.service.settings, limits=limits)
    offers = offered(api, FOUR, task)
    assert [offer["processes"] for offer in offers] == [starts] * tasks
    assert [offer["id"] for offer in offers] == [f"{offer['job']}-{k}" for k, offer in enumerate(offers)]


def test_help_names_the_page_and_says_how_often_its_example_starts(api: Api) -> None:
    page = topics()["jobspecs"]
    assert "docs/jobspec.md" in page
    assert "starts hostname four times" in page
    assert FOUR in page
    (offer,) = offered(api, FOUR, "{command: [hostname], resources: work}")
    assert offer["processes"] == 4


def test_page_names_every_key() -> None:
    known = schema("nextgen")
    for part in ("resource", "task", "group"):
        assert [key for key in known["$defs"][part]["properties"] if f"`{key}`" not in PAGE] == []


def test_tables_of_attributes_are_what_the_code_reads() -> None:
    first, second = section("Attributes").split("These are read by the policy")
    assert {key for row in rows(first) for key in code(row[0])} == SYSTEM
    assert {key for row in rows(second) for key in code(row[0])} == BY_POLICY - {"resources"}


def test_words_of_policies_and_unknown_ones_are_warnings() -> None:
    job = rainbow.parse_jobspec("{resources: {a: {type: core}}, colour: 1, attributes: {system: {priority: 3}}}")
    of_policies = (
        "/attributes/system/priority is read by some scheduling policies only; the cluster's policy may ignore it"
    )
    assert {"unknown key /colour ignored", of_policies} <= set(job.warnings)


def said(cell: str) -> list[Any]:
    """What a cell of our words says, as YAML."""
    return [yaml.safe_load(text) for text in code(cell) if ": " in text]


@pytest.mark.parametrize("cell", [row[3] for row in rows(OTHERS.split("## Options side by side")[1])])
def test_words_for_slurm_flux_and_kubernetes_are_read(cell: str) -> None:
    for options in said(cell):
        if "type" in options:
            assert not rainbow.parse_jobspec({"resources": {"a": options}, "tasks": [{"command": ["x"]}]}).warnings
        elif set(options) <= SYSTEM | BY_POLICY:
            rainbow.parse_jobspec({"resources": {"a": {"type": "core"}}, "attributes": {"system": options}})
        else:
            assert set(options) <= {"replicas", "exclusive"}


@pytest.mark.parametrize(
    ("amount", "taken"),
    [
        ("count: 4, unit: GiB", 4 * 2**30),
        ("count: 4, unit: GB", 4 * 10**9),
        ("count: 4", 4 * 10**9),
        ("count: 4, unit: G", None),
    ],
)
def test_units_are_converted_and_counted_exactly(
    amount: str, taken: int | None, clusters: list[rainbow.Cluster]
) -> None:
    verdict = rainbow.match(rainbow.parse_jobspec(f"resources: {{a: {{type: memory, {amount}}}}}"), clusters)[-1]
    assert (verdict.totals["memory"] if verdict.matched else None) == taken


def test_node_without_parts_is_taken_whole(clusters: list[rainbow.Cluster]) -> None:
    whole, part = (
        rainbow.match(rainbow.parse_jobspec(f"resources: {{a: {{type: node{more}}}}}"), clusters)[-1].totals["cores"]
        for more in ("", ", with: [{type: core, count: 4}]")
    )
    assert (whole, part) == (16, 4)


def test_rfc_14_refuses_what_it_does_not_know_and_wants_attributes() -> None:
    text = next(text for text in EXAMPLES if "default, count" in text)
    with pytest.raises(rainbow.JobspecError, match="unknown key extra in the jobspec"):
        rainbow.parse_jobspec(text + "extra: 1\n")
    with pytest.raises(rainbow.JobspecError, match="missing key in the jobspec: attributes"):
        rainbow.parse_jobspec(text.split("attributes")[0])


def test_copies_have_names_and_tasks_of_a_group_start_together() -> None:
    tasks, groups = (
        rainbow.parse_jobspec(next(text for text in EXAMPLES if f"name: {name}" in text))
        for name in ("train", "simulate")
    )
    named = [[task.name for task in gang.tasks] for gang in gangs(tasks)]
    assert named == [["fetch"], ["train"], *([f"test-{k}"] for k in range(10))]
    assert [[task.name for task in gang.tasks] for gang in gangs(groups)] == [["model", "probe"], ["task-2"]]


def test_what_is_not_acted_on_changes_nothing() -> None:
    plain: dict[str, Any] = {"resources": {"a": {"type": "core"}}, "tasks": [{"command": ["x"], "resources": "a"}]}
    more = {**plain, "resources": {"a": {"type": "core", "attributes": {"b": 1}}}}
    assert rainbow.parse_jobspec(more) == rainbow.parse_jobspec(plain)


@pytest.mark.parametrize(("amount", "hosts"), [("count", ["heron"]), ("replicas", ["heron", "juniper", "willow"])])
def test_a_slot_stays_on_a_node_and_several_may_spread(
    amount: str, hosts: list[str], clusters: list[rainbow.Cluster]
) -> None:
    verdicts = rainbow.match(rainbow.parse_jobspec(f"resources: {{a: {{type: core, {amount}: 17}}}}"), clusters)
    assert [verdict.cluster for verdict in verdicts if verdict.matched] == hosts
