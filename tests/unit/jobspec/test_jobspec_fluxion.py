"""Fluxion's own jobspec texts, valid and invalid: accepted and refused alike, but for the listed exceptions."""

import json
from pathlib import Path

import pytest
import yaml

from rainbow.errors import JobspecError
from rainbow.jobspec import parse_jobspec
from tests.support.asking import shared_folder

EXCEPTIONS = Path(__file__).parents[2] / "cases" / "jobspec" / "fluxion_exceptions.yaml"


@pytest.fixture(scope="module")
def texts():
    results = json.loads((shared_folder() / "conformance" / "fluxion" / "jobspecs.json").read_text())
    assert len(results) == 69
    return results


def fault_of(text):
    try:
        parse_jobspec(text)
    except JobspecError as fault:
        return fault
    return None


def test_fluxion_texts_are_accepted_and_refused_alike_but_for_the_exceptions(texts):
    accepted = {row["name"]: fault_of(row["yaml"]) is None for row in texts}
    otherwise = {row["name"]: accepted[row["name"]] for row in texts if accepted[row["name"]] != row["valid"]}
    listed = {row["name"]: row["accepted"] for row in yaml.load(EXCEPTIONS.read_text(), yaml.CSafeLoader)}
    assert otherwise == listed


def test_every_refusal_says_where(texts):
    faults = [fault for row in texts if (fault := fault_of(row["yaml"]))]
    assert all(fault.pointer is not None and fault.line and fault.column for fault in faults)


def test_every_exception_names_its_clause():
    assert all(row["clause"] for row in yaml.load(EXCEPTIONS.read_text(), yaml.CSafeLoader))
