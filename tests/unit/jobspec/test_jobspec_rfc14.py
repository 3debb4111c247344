"""RFC 14 and its relatives: counts, trees, tasks, attributes, dependencies; cases are in cases/jobspec/."""

from pathlib import Path

import pytest
import yaml

from rainbow.errors import JobspecError
from rainbow.jobspec import parse_jobspec
from rainbow.jobspec.quantities import read_count
from tests.service.core.test_inputs_walk import amounts

CASES = Path(__file__).parents[2] / "cases" / "jobspec"
COUNTS = yaml.load((CASES / "counts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
WHOLE = {
    "version": 999,
    "resources": [{"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}],
    "tasks": [{"command": ["x"], "slot": "a", "count": {"per_slot": 1}}],
    "attributes": {},
}


def cases(name):
    return yaml.load((CASES / name).read_text(encoding="utf-8"), yaml.CSafeLoader)


def refusal(document):
    with pytest.raises(JobspecError) as caught:
        parse_jobspec(yaml.safe_dump(document, allow_unicode=True))
    assert caught.value.line >= 1
    assert caught.value.column >= 1
    return caught.value


@pytest.mark.parametrize("case", COUNTS["read"], ids=lambda case: str(case["count"]))
def test_count_means_what_rfc_14_says(case):
    count = read_count(case["count"], "")
    least, most, operator, operand = (*case["means"], "+", 1)[:4] if len(case["means"]) == 2 else case["means"]
    assert (count.min, count.max, count.operator, count.operand) == (least, most, operator, operand)
    assert list(count.listed) == case.get("listed", [])
    assert parse_jobspec({**WHOLE, "resources": [{**WHOLE["resources"][0], "count": case["count"]}]})


@pytest.mark.parametrize("case", COUNTS["refused"], ids=lambda case: str(case["count"]))
def test_malformed_count_is_refused_at_its_place(case):
    fault = refusal({**WHOLE, "resources": [{**WHOLE["resources"][0], "count": case["count"]}]})
    assert case["says"] in fault.message
    assert fault.pointer == "/resources/0/count" + case.get("pointer", "")


@pytest.mark.parametrize("case", cases("rfc14.yaml"), ids=lambda case: case["name"])
def test_part_of_an_rfc_14_jobspec(case):
    document = {key: case.get(key, value) for key, value in WHOLE.items()}
    if "refused" in case:
        assert refusal(document).pointer == case["refused"]
        return
    request = parse_jobspec(document)
    assert dict(amounts(request.resources)) == case.get("wants", {"slot": 1, "core": 1})
    assert list(request.warnings) == case.get("warnings", [])
    assert len(request.tasks) == len(document["tasks"])
    if "command" in case:
        assert list(request.tasks[0].command) == case["command"]


@pytest.mark.parametrize("case", cases("dependencies.yaml"), ids=lambda case: str(case["given"])[:60])
def test_dependencies_are_read_or_refused(case):
    document = {**WHOLE, "attributes": {"system": {"dependencies": case["given"]}}}
    if "refused" in case:
        fault = refusal(document)
        assert case["says"] in fault.message
        assert fault.pointer == "/attributes/system/dependencies" + case["refused"]
        return
    request = parse_jobspec(document)
    assert [[each.scheme, each.value, each.type, each.scope] for each in request.dependencies] == case["read"]
    assert request.warnings == ()
    assert request.attributes["system"]["dependencies"] == case["given"]


@pytest.mark.parametrize("key", sorted(WHOLE))
def test_jobspec_without_one_of_its_keys_is_refused(key):
    fault = refusal({name: value for name, value in WHOLE.items() if name != key})
    assert (fault.pointer, fault.message) == ("", f"missing key in the jobspec: {key}")
