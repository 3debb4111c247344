"""Jobspecs meant to hurt: real ones spoilt, random YAML and trees; only documented errors come out, and soon."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import InputError, JobspecError, LimitError
from rainbow.jobspec import Limits, Request, parse_jobspec
from tests.conftest import examples
from tests.support.jobspecs import DOCUMENTS, JUNK, TEXTS, mangled, spoilt

SECONDS = float(os.environ.get("RAINBOW_SOAK_SECONDS", "60"))
QUICK = settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
SMALL = Limits(values=5_000)
SOURCES = st.one_of(
    mangled(),
    spoilt(),
    JUNK.filter(lambda tree: isinstance(tree, dict)),
    st.text(max_size=60),
    st.binary(max_size=60),
    mangled().map(lambda text: text.encode("utf-8", "surrogatepass")),
)


def read_or_refuse(source: Any) -> Request | None:
    """Read; a refusal is documented, says where, and can be shown and sent."""
    try:
        request = parse_jobspec(source, SMALL)
    except (JobspecError, LimitError) as fault:
        check_fault(fault, isinstance(source, (str, bytes)))
        return None
    json.dumps(request.attributes, allow_nan=False, ensure_ascii=False).encode()
    json.dumps(request.warnings, ensure_ascii=False).encode()
    assert all(task.command == tuple(map(str, task.command)) for task in request.tasks)
    return request


def check_fault(fault: InputError, located: bool) -> None:
    assert fault.code in ("jobspec-invalid", "limit-exceeded")
    assert len(str(fault)) < 70_000
    str(fault).encode("utf-8", "strict")
    if fault.pointer is not None and located:
        assert fault.line >= 1
        assert fault.column >= 1


@QUICK
@given(SOURCES)
def test_hostile_jobspec_is_read_or_refused(source: Any) -> None:
    read_or_refuse(source)


@QUICK
@given(st.one_of(spoilt(), JUNK.filter(lambda tree: isinstance(tree, dict))))
def test_document_is_read_alike_as_json_text_and_as_mapping(document: Any) -> None:
    try:
        text = json.dumps(document)
    except ValueError:  # Python writes no number of 5000 digits
        return
    request, other = read_or_refuse(document), read_or_refuse(text)
    assert (request is None) == (other is None)
    if request is not None and other is not None:
        assert request.variants == other.variants
        assert request.tasks == other.tasks


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_real_jobspec_is_read_cut_off_anywhere_or_refused(text: str) -> None:
    for end in range(0, len(text), max(1, len(text) // 40)):
        read_or_refuse(text[:end])


FORMS = {
    "rfc14": "version: 1\nresources: [%s]\ntasks: [%s]\nattributes: {}",
    "tasks": "resources: {a: {type: core}}\ntasks: [{name: t0}, %s]",
    "group": "resources: {a: {type: core}}\ngroups: [{name: g, depends_on: [%s], tasks: [%s]}]",
    "choice": "resources: {%s}\ntasks: [%s]",
    "constraint": "resources: {a: {type: core}}\nattributes: {system: {constraints: {%s: [%s]}}}",
}
ROW = "{name: t%d, depends_on: [t%d, t0]},"
SLOT, TASK = "{type: slot, label: a},", "{command: [a], slot: a, count: {per_slot: 1}},"
LARGE = {
    "slots and tasks": FORMS["rfc14"] % (SLOT * 12_000, TASK * 6_000),
    "lists of counts": FORMS["rfc14"] % ('{type: c, count: "1,3-10001"},' * 15_000, ""),
    "a fault in every line": FORMS["rfc14"] % ("1," * 90_000, ""),
    "tasks in a row": FORMS["tasks"]
    % "".join(f"{{name: t{k}, depends_on: [t{k - 1}, t0]}}," for k in range(1, 12_000)),
    "a group that waits for many": FORMS["group"] % ("x," * 40_000, "{}," * 30_000),
    "a group that waits for itself": FORMS["group"] % ("g", "{}," * 30_000),
    "one of two among many": FORMS["choice"]
    % ("".join(f"g{k}: {{type: a}}, " for k in range(20_000)), "{resources: 'g1|g2'}"),
    "a choice for every task": FORMS["choice"]
    % (
        "".join(f"g{k}: {{type: a}}, " for k in range(8_000)),
        "".join(f"{{resources: 'g{k}|g{k + 1}'}}, " for k in range(0, 8_000, 2)),
    ),
    "ranks": FORMS["constraint"] % ("ranks", '"0-999999",' * 2_000),
    "hosts": FORMS["constraint"] % ("hostlist", '"n[0-999999]",' * 2_000),
    "unknown keys": "task: {}\n" + "".join(f"k{k}: 1\n" for k in range(60_000)),
    "a long text as command": "task: {command: 'a" + " a" * 400_000 + "'}",
    "long keys nested": "".join("{%s: " % ("k" * 999) for _ in range(50)) + "[" + "1," * 80_000 + "]" + "}" * 50,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_large_jobspec_is_read_or_refused_in_seconds(text: str) -> None:
    started = time.process_time()
    try:
        request = parse_jobspec(text)
        assert len(request.warnings) < 200
    except (JobspecError, LimitError) as fault:
        check_fault(fault, True)
    assert time.process_time() - started < 10  # takes 1 to 2 s; what grows by the square would take minutes


@pytest.mark.soak
def test_hostile_jobspecs_for_a_minute() -> None:
    end = time.monotonic() + SECONDS
    count = 0

    @settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(SOURCES)
    def campaign(source: Any) -> None:
        nonlocal count
        count += 1
        started = time.process_time()
        read_or_refuse(source)
        assert time.process_time() - started < 5

    while time.monotonic() < end:
        campaign()
    assert count > 100
    assert len(DOCUMENTS) > 10
