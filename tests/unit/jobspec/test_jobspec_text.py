"""The YAML door: what no jobspec is made of is refused with its place, and numbers keep their text."""

import json
import time
from pathlib import Path

import pytest
import yaml

from rainbow.errors import InputError, JobspecError, LimitError
from rainbow.jobspec import Limits, parse_jobspec
from rainbow.jobspec.validation import keeping
from rainbow.jobspec.yaml_reader import load

REFUSED = yaml.safe_load(
    (Path(__file__).parents[2] / "cases" / "jobspec" / "texts_refused.yaml").read_text(encoding="utf-8")
)
JOB = """
version: 1
resources: [{type: slot, count: 1, label: here, with: [{type: core}]}]
task:
  command: [true_]
  slot: here
  resources:
    spack: {match: [{field: version, value: %s}], range: [{field: version, min: %s}]}
    os: {release: %s}
  attributes: {environment: {VERSION: %s}}
"""


def source_of(case):
    if "hex" in case:
        return bytes.fromhex(case["hex"])
    return case["text"] if "text" in case else "".join(text * times for text, times in case["repeat"])


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_text_no_jobspec_is_made_of_is_refused_with_its_place(case):
    started = time.process_time()
    with pytest.raises((JobspecError, LimitError)) as caught:
        parse_jobspec(source_of(case))
    fault = caught.value
    assert fault.code == case.get("code", "jobspec-invalid")
    assert case["says"] in fault.message
    for part in ("pointer", "line", "column"):
        assert getattr(fault, part) == case.get(part, getattr(fault, part)), part
    assert len(fault.message) < 500
    assert time.process_time() - started < 10


@pytest.mark.parametrize("written", ["1.10", "1.1", "010", "0x1F", "1_000", "3600.", "1e3", "2024-01-01", "8"])
def test_number_is_text_where_text_is_meant(written):
    request = parse_jobspec(JOB % ((written,) * 4))
    (match, low, flat) = (need.conditions[0].options for need in request.resources[0].needs)
    assert [str(match["value"]), low["min"], str(flat["value"])] == [written] * 3
    assert request.tasks[0].environment == {"VERSION": written}


def test_time_of_the_day_is_no_number_to_base_60():
    request = parse_jobspec(JOB % ("1:30", 1, "1:30", "1:30"))
    match, _, flat = (need.conditions[0].options for need in request.resources[0].needs)
    assert [match["value"], flat["value"], request.tasks[0].environment["VERSION"]] == ["1:30"] * 3


def test_number_is_a_number_where_a_number_is_meant():
    request = parse_jobspec("resources: {a: {type: core, count: 010}}\nattributes: {system: {duration: 3600.}}")
    assert (request.resources[0].children[0].count.min, request.duration) == (8, 3600.0)
    assert str(request.resources[0].children[0].count.min) == "8"


@pytest.mark.parametrize(("written", "value"), [("0.40", 0.4), ("3600.", 3600.0), ("1_000", 1000), ("7", 7)])
def test_parameter_of_selection_is_a_plain_number(written, value):
    request = parse_jobspec(
        f"resources: {{a: {{type: core}}}}\nattributes: {{parameter: {{x: {written}}}, y: {written}}}"
    )
    assert request.parameters == {"x": value, "y": value}
    assert {type(result) for result in request.parameters.values()} == {type(value)}


@pytest.mark.parametrize(("written", "value"), [("yes", "true"), ("true", "true"), ("off", "false")])
def test_boolean_of_an_environment_is_written_as_json_writes_it(written, value):
    assert parse_jobspec(JOB % (8, 8, 8, written)).tasks[0].environment == {"VERSION": value}


UNSOUND = [10**5000, float("inf"), float("nan"), 2**64, -(2**70), object(), b"x", {1: 2}, {1, 2}]


@pytest.mark.parametrize("number", UNSOUND, ids=[f"{type(x).__name__}-{k}" for k, x in enumerate(UNSOUND)])
def test_mapping_with_what_no_jobspec_can_hold_is_refused_with_its_pointer(number):
    with pytest.raises(JobspecError) as caught:
        parse_jobspec({"resources": {"a": {"type": "core"}}, "attributes": {"user": {"a/b": [1, number]}}})
    assert caught.value.pointer == "/attributes/user/a~1b/1"


@pytest.mark.parametrize("text", ["\0", "a\ud800", "\udfff"])
def test_mapping_with_text_no_store_can_hold_is_refused(text):
    for document in ({"a": {"b": text}}, {"a": {text: 1}}):
        with pytest.raises(JobspecError) as caught:
            parse_jobspec(document)
        assert caught.value.pointer in ("/a/b", "/a")


def test_mapping_is_held_to_the_limits_of_text():
    deep: dict = {}
    deep["a"] = deep
    large = {"a": ["x" * 1000] * 1100}
    wide, long = {"a": [0] * 100_000}, {"k" * 1001: 1}
    for document, limit in ((deep, "depth"), (wide, "values"), (large, "size"), (long, "key")):
        with pytest.raises(LimitError) as caught:
            parse_jobspec(document)
        assert caught.value.facts["limit"] == limit


@pytest.mark.parametrize("number", [1e-05, 1e16, 2.5e-7, 0.5, 7])
def test_json_text_means_what_it_means_in_json(number):
    document = {
        "resources": {"a": {"type": "core"}},
        "tasks": [{"command": ["echo", "\U0001f600", "\\ud83d\\ude00", "1e5", "~"]}],
        "attributes": {"system": {"duration": number}, "parameter": {"x": number}},
    }
    assert parse_jobspec(json.dumps(document)) == parse_jobspec(document)
    assert parse_jobspec(json.dumps(document, indent="\t").encode()) == parse_jobspec(document)


def test_word_with_an_exponent_stays_text_in_yaml():
    request = parse_jobspec("resources: {a: {type: core}}\ntask: {command: [solve, -tol, 1e-6]}")
    assert request.tasks[0].command == ("solve", "-tol", "1e-6")


def test_positions_lead_to_the_nearest_value():
    _, positions = load("a:\n  b: [1,\n    {c/d: x}]\n", Limits())
    assert positions.nearest("/a/b/1/c~1d") == (3, 11)
    assert positions.nearest("/a/b/7/x") == positions.nearest("/a/b") == (2, 6)
    assert positions.nearest("") == positions.nearest("/nothing") == (1, 1)


ENVELOPE = """
name: mine
jobspec:
  resources: {a: {type: core, requires: [{name: spack, field: version, match: %s}]}}
  tasks: [{command: [x], resources: a}]
  attributes: {system: {duration: 60.}, parameter: {x: 0.40}}
"""


def test_jobspec_in_a_yaml_envelope_keeps_the_text_of_its_numbers():
    document, _ = load(ENVELOPE % "1.10", Limits())
    stored = json.loads(json.dumps(keeping(document["jobspec"])))
    read, again = parse_jobspec(document["jobspec"]), parse_jobspec(stored)
    assert again.variants == read.variants
    assert (again.duration, again.parameters) == (read.duration, read.parameters) == (60.0, {"x": 0.4})
    (need,) = again.resources[0].children[0].needs
    assert need.conditions[0].options["value"] == "1.10"


TEXTS = [
    '{"a": [1, -7, 1.10, 2.50, 0.5, true, null, "x", "1.10", {}], "b": {"c": "\\u00e9\\/\\n\\ud83d\\ude00"}}',
    '{"a": -0, "b": 1e5, "c": 1.5e3, "d": 1E-05, "e": 0.0, "f": 100000000000000000000}',
    '  {"<<": 1, "yes": "no", "2020-01-01": "~"}  ',
    '{"a": 1, "a": 2}',
    '{"a": NaN}',
    '{"a": ' + "9" * 101 + "}",
    '{"a": "caf\u00e9", "b": "\u2028"}',
    '{"a": ' + "[" * 70 + "]" * 70 + "}",
]


def _loaded(text):
    try:
        return repr(load(text, Limits())[0])
    except InputError as fault:
        return str(fault), fault.pointer, fault.line, fault.column


@pytest.mark.parametrize("text", TEXTS)
def test_json_is_read_as_yaml_would_read_it(text, monkeypatch):
    result = _loaded(text)
    monkeypatch.setattr("rainbow.jobspec.yaml_reader._plain_json", lambda _: None)
    assert result == _loaded(text)


WHOLE = """{"version": %s, "resources": {"w": {"type": "node", "replicas": %s}},
"tasks": [{"command": ["a"], "resources": "w"}]}"""


@pytest.mark.parametrize("numbers", [("2.0", "1"), ("1", "2.0"), ("1", "true"), ("1", "0")])
def test_fault_in_json_is_found_and_placed_however_it_is_read(numbers, monkeypatch):
    """The fast reader and the fast validator refuse what the others do, and these say what is wrong."""

    def refused():
        with pytest.raises(JobspecError) as caught:
            parse_jobspec(WHOLE % numbers)
        return str(caught.value), caught.value.pointer, caught.value.line, caught.value.column

    result = refused()
    monkeypatch.setattr("rainbow.jobspec.yaml_reader._plain_json", lambda _: None)
    monkeypatch.setattr("rainbow.jobspec.validation._is_valid", lambda *_: False)
    assert result == refused()
    assert result[2] == 1
