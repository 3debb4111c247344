"""Jobspecs that people have: what fractale, compspec and Fluxion write is read, or refused for a stated reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import rainbow
from rainbow.errors import InputError
from rainbow.jobspec import Request, parse_jobspec
from tests.support import strategies
from tests.support.asking import shared_folder

CASES = Path(__file__).parents[2] / "cases" / "jobspec"
TASK = {"command": ["x"], "slot": "a", "count": {"per_slot": 1}}
# by what their refusal says: a task names a slot that the jobspec does not have
REFUSED = {
    "core_valid/t~jobspec~valid~basic_v1.yaml": "slot 'foo' is not defined",
    **{
        f"sched/t~data~resource~jobspecs~flexible~test{number}.yaml": "slot 'default' is not defined"
        for number in ("001", "011", "013")
    },
    **{
        f"sched/t~data~resource~jobspecs~{name}.yaml": "slot 'socketlevel' is not defined"
        for name in (
            *("min_max~test001", "min_max~test003", "min_max~test005"),
            *("min_max2~test002", "min_max2~test004", "min_max2~test006", "min_max2~test008"),
        )
    },
}


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in yaml.load((CASES / name).read_text(), yaml.CSafeLoader)]


def read(document: Any, case: Any) -> Request | None:
    """Read a jobspec; None if it is refused as the case wants it to be."""
    if "refused" not in case:
        return parse_jobspec(document)
    with pytest.raises(InputError) as caught:
        parse_jobspec(document)
    assert (caught.value.pointer, case["says"] in caught.value.message) == (case["refused"], True), caught.value
    return None


def slots(forest: Any) -> list[Any]:
    parts = [part for tree in forest for part in tree.walk() if part.is_slot]
    held = [{child.type: child.count.min for child in part.children if not child.is_slot} for part in parts]
    return [[part.label, part.count.min, inside] for part, inside in zip(parts, held, strict=True)]


@pytest.mark.parametrize("case", cases("alternatives.yaml"))
def test_slots_of_fluxion_are_alternatives(case: Any) -> None:
    document = {"version": 9999, "resources": case["resources"], "tasks": [TASK], "attributes": {}}
    if (request := read(document, case)) is not None:
        assert [slots(forest) for forest in request.variants] == case["variants"]


@pytest.mark.parametrize("case", cases("requires.yaml"))
def test_requires_of_fractale_and_compspec_are_needs(case: Any) -> None:
    if (request := read(case["jobspec"], case)) is None:
        return
    needs = [need for tree in request.resources for part in tree.walk() for need in part.needs]
    answers = [
        [n.subsystem, {c.options["field"]: c.options.get("value", c.options.get("min")) for c in n.conditions}]
        for n in needs
    ]
    assert answers == case["needs"]
    assert ("warns" not in case) or case["warns"] in request.warnings
    assert ("warns" in case) or not [text for text in request.warnings if "requires" in text]


def test_the_first_alternative_that_fits_is_taken_and_its_tasks_run_there() -> None:
    resources = yaml.load((CASES / "alternatives.yaml").read_text(), yaml.CSafeLoader)[0]["resources"]
    document = {"version": 9999, "resources": resources, "tasks": [TASK], "attributes": {}}
    shapes = {"gpus": ["gpu", *["core"] * 8], "cores": ["core"] * 8}
    for held, copies, requirement in (("gpus", 2, 2), ("cores", 3, 3), ("cores", 2, None)):
        cluster = strategies.cluster([("node", shapes[held])] * copies, [])
        [verdict] = rainbow.match(parse_jobspec(document), [cluster])
        placed = [label for label, _ in verdict.take.placed] if verdict.take else None
        assert placed == (["a"] * requirement if requirement else None)


@pytest.mark.parametrize(
    "text",
    [
        "{version: 1, resources: [{type: slot, count: 1, label: a, with: []}], tasks: [], attributes: {}}",
        "{version: 1, resources: [{type: slot, count: 1, label: a}], tasks: [], attributes: {}}",
        "resources: {w: {type: slot, replicas: 2}}",
        "resources: {w: {type: slot, with: [{type: slot}]}}",
        "task: {command: [x]}",
    ],
)
def test_a_jobspec_that_asks_for_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_jobspec(text)
    assert "asks for nothing" in caught.value.message
    assert (caught.value.pointer or "").startswith(("/resources", "/task"))
    assert caught.value.line


def test_every_collected_jobspec_is_read_or_refused_for_the_stated_reason() -> None:
    folder = shared_folder() / "collected" / "jobspecs"
    if not folder.is_dir():
        pytest.skip("../shared has no collected jobspecs")
    result, dialects = dict[str, str](), Counter[str]()
    texts = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in texts:
        try:
            request = parse_jobspec(path.read_text())
        except InputError as fault:
            result[str(path.relative_to(folder))] = (
                fault.message if fault.pointer and fault.line else "says not where"
            )
        else:
            dialects[request.dialect] += 1
            assert not [text for text in request.warnings if text.startswith("unknown key ")], path
            assert not any(part.type.endswith("_slot") for forest in request.variants for part in forest)
    assert result.keys() == REFUSED.keys()
    assert {name: REFUSED[name] in text for name, text in result.items()} == dict.fromkeys(REFUSED, True)
    assert len(texts) == len(result) + dialects.total() >= 114
    assert dialects["nextgen"] >= 5
