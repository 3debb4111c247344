"""The examples a new user runs first do what their own comments say."""

import json
from pathlib import Path

import pytest
import yaml

import rainbow
from rainbow.matching import backends
from rainbow.scheduling import gangs
from tests.support.oracle_cases import OWN_BACKENDS

ROOT = Path(__file__).parents[2]
EXPECTED = yaml.load((ROOT / "jobspecs" / "expected.yaml").read_text(), yaml.CSafeLoader)


@pytest.fixture(scope="module")
def clusters():
    return [read(folder) for folder in sorted((ROOT / "graphs").iterdir()) if folder.is_dir()]


def read(folder):
    cluster = rainbow.read_cluster(json.loads((folder / "cluster.json").read_text()), name=folder.name)
    for path in sorted(folder.glob("*.subsystem.json")):
        cluster = cluster.with_subsystem(path.name.removesuffix(".subsystem.json"), json.loads(path.read_text()))
    return cluster


def test_every_jobspec_has_an_expectation():
    assert sorted(EXPECTED) == sorted(p.name for p in (ROOT / "jobspecs").glob("*.yaml") if p.name != "expected.yaml")


@pytest.mark.parametrize("backend", OWN_BACKENDS)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_jobspec_matches_the_expected_clusters(name, backend, clusters):
    job = rainbow.parse_jobspec((ROOT / "jobspecs" / name).read_text())
    verdicts = rainbow.match(job, clusters, backend=backend)
    assert [v.cluster for v in verdicts if v.matched] == EXPECTED[name]
    assert all(v.reason for v in verdicts if not v.matched)
    assert job.warnings == ()


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if EXPECTED[name]))
def test_every_gang_of_a_matching_jobspec_can_be_placed(name, clusters):
    job = rainbow.parse_jobspec((ROOT / "jobspecs" / name).read_text())
    backend = backends.get("networkx")
    for cluster in clusters:
        if cluster.name in EXPECTED[name]:
            assert all(backend.take(gang.request, cluster, list(cluster.workers)) for gang in gangs(job))
