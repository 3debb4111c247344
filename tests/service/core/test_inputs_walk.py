"""Every file of ../shared/inputs is what the tables in cases/inputs/ say, and is read as that, unmodified."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

import rainbow
from rainbow.errors import InputError
from rainbow.jobspec.yaml_reader import Limits, load
from rainbow.service import settings_of
from rainbow.service.clusters.registration import check_state
from tests.support.asking import SHARED

CASES = Path(__file__).parents[2] / "cases" / "inputs"
ROWS = [row for table in sorted(CASES.glob("*.yaml")) for row in yaml.load(table.read_text(), yaml.CSafeLoader)]
INPUTS = SHARED / "inputs"

pytestmark = pytest.mark.skipif(not INPUTS.is_dir(), reason="../shared is not beside this checkout")


def files_of(row):
    return [path for path in sorted(INPUTS.glob(row["files"])) if path.is_file()]


def amounts(resources, times=1):
    """Amounts wanted by type; nested counts multiply."""
    results = Counter()
    for resource in resources:
        results[resource.type] += times * resource.count.min
        results += amounts(resource.children, times * resource.count.min)
    return results


def read_as_cluster(path, row):
    cluster = rainbow.read_cluster(json.loads(path.read_text()), name="here")
    assert cluster.totals.get("node", 0) > 0
    if "totals" in row:
        assert cluster.totals == row["totals"]


def read_as_subsystem(path, row):
    cluster = rainbow.read_cluster(json.loads(path.with_name(row["cluster"]).read_text()), name="here")
    cluster = cluster.with_subsystem(row["subsystem"], json.loads(path.read_text()))
    assert cluster.subsystems[row["subsystem"]].attached


def read_as_state(path, row):
    assert check_state(load(path.read_bytes(), Limits())[0]) == row["values"]


def read_as_configuration(path, row):
    assert settings_of(path.read_bytes()).selector == row["selector"]


def read_as_jobspec(path, row):
    request = rainbow.parse_jobspec(path.read_bytes())
    assert (request.dialect, dict(amounts(request.resources))) == (row["dialect"], row["wants"])
    assert list(request.warnings) == row.get("warnings", [])


def read_as_dependencies(path, row):
    listed = yaml.load(path.read_text(), yaml.CSafeLoader)
    document = {"resources": {"here": {"type": "core"}}, "attributes": {"system": {"dependencies": listed}}}
    result = rainbow.parse_jobspec(document).dependencies
    assert [[each.scheme, each.value, each.type, each.scope] for each in result] == row["read"]


def read_as_none(path, row):
    assert row["why"]
    with pytest.raises(InputError):
        rainbow.parse_jobspec(path.read_bytes())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["files"])
def test_inputs_are_read_as_what_they_are(row):
    read = globals()[f"read_as_{row['kind']}"]
    for path in files_of(row):
        read(path, row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["files"])
def test_every_expectation_is_met_by_its_number_of_files(row):
    assert len(files_of(row)) == row.get("count", 1)


def test_every_file_has_one_expectation():
    expected = Counter(path for row in ROWS for path in files_of(row))
    results = {path for path in INPUTS.rglob("*") if path.is_file()}
    assert sorted(results - set(expected)) == []
    assert [path for path, times in expected.items() if times > 1] == []
