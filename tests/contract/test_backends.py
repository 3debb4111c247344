"""Every backend gives the answers of the contract."""

from pathlib import Path

import pytest
import yaml

import rainbow
from rainbow.matching import backends
from tests.shapes import cluster

CASES = Path(__file__).parents[1] / "cases" / "matching"
THREE_NODES = "cluster(rack(node*3(core*4)))"


def cases():
    for path in sorted(CASES.glob("*.yaml")):
        for case in yaml.safe_load(path.read_text()):
            yield pytest.param(case, id=f"{path.stem}: {case['name']}")


@pytest.mark.parametrize("backend", backends.names())
@pytest.mark.parametrize("case", list(cases()))
def test_case_gives_the_stated_answer(case, backend):
    built = cluster(case.get("shape", THREE_NODES), hung=case.get("hung"))
    document = {key: case[key] for key in ("resources", "tasks") if key in case}
    verdict = rainbow.match(rainbow.parse_jobspec(document), [built], backend=backend)[0]
    if "reason" in case:
        assert not verdict.matched
        assert verdict.reason.why in (case["reason"], *case.get("alternatives", []))
        assert case.get("says", "") in verdict.reason.text
    else:
        assert verdict.matched, verdict.reason
        assert verdict.fits == case["fits"]


@pytest.mark.parametrize("backend", backends.names())
def test_refusal_names_version_found_and_bounds(backend):
    built = cluster(
        "cluster(node(core))", hung=[{"at": "node0", "subsystem": "spack", "type": "p", "version": "0.5.2"}]
    )
    job = rainbow.parse_jobspec(
        {
            "resources": {
                "x": {
                    "type": "node",
                    "requires": [{"name": "spack", "field": "version", "min": "0.7.1", "max": "0.7.5"}],
                }
            }
        }
    )
    text = rainbow.match(job, [built], backend=backend)[0].reason.text
    assert "0.5.2" in text
    assert "0.7.1" in text
    assert "0.7.5" in text


@pytest.mark.parametrize("backend", backends.names())
def test_take_stays_on_the_free_workers(backend):
    built = cluster("cluster(node*3(core*4))")
    job = rainbow.parse_jobspec({"resources": {"x": {"type": "core", "replicas": 2, "count": 2}}})
    take = backends.get(backend).take(job, built, ["node2"])
    assert take.placed == (("x", {"node2": {"core": 2}}), ("x", {"node2": {"core": 2}}))
    assert backends.get(backend).take(job, built, []) is None


@pytest.mark.parametrize("backend", backends.names())
def test_rack_with_a_busy_worker_is_not_taken_whole(backend):
    built = cluster("cluster(rack*2(node*2(core)))")
    job = rainbow.parse_jobspec({"resources": {"x": {"type": "rack"}}})
    take = backends.get(backend).take(job, built, ["node1", "node2", "node3"])
    assert take.vertices == {"rack1": 1}
