"""Backend `fluxion` over a library that does what it is told: answers, refuses, hangs, crashes, is not there."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import rainbow
from rainbow.errors import ConfigError, JobspecError
from rainbow.fluxion.documents import graph_of, held_by_others, jobspec_of
from rainbow.fluxion.helper import MISSING
from rainbow.matching import backends, faults_of
from rainbow.matching.model.layout import layout
from rainbow.service import read_config
from rainbow.testing.backends import cluster
from tests.conftest import grid, jobspec

STUB = Path(__file__).parents[2] / "support" / "founding" / "reapi_stub.c"
SHAPE = "cluster(node*3(core*4))"
TWO_CORES = {"resources": {"w": {"type": "core", "count": 2}}, "tasks": [{"command": ["true"], "resources": "w"}]}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The stub, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("fluxion") / "libreapi_cli.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", made, STUB], check=True)
    return made


@pytest.fixture
def stub(library, monkeypatch):
    """Let the backend use the stub, which does as it is told."""

    def told(mode="answer", **more):
        backends.get("fluxion")._helper.end()
        monkeypatch.setenv("RAINBOW_FLUXION", str(library))
        monkeypatch.setenv("STUB", mode)
        monkeypatch.setenv("RAINBOW_FLUXION_SECONDS", more.pop("seconds", "60"))
        for name, value in more.items():
            monkeypatch.setenv(name, value)

    yield told
    backends.get("fluxion")._helper.end()


def verdict(**more):
    return rainbow.match(rainbow.parse_jobspec({**TWO_CORES, **more}), [cluster(SHAPE)], backend="fluxion")[0]


def test_answers_of_the_library_are_verdicts_and_proven_takes(stub):
    stub()
    result = verdict()
    assert (result.matched, result.fits, result.exact) == (True, 2, True)
    assert result.take.placed == (("w", {"node0": {"core": 2}}),)
    assert faults_of(rainbow.parse_jobspec(TWO_CORES), cluster(SHAPE), result.take.certificate()) == []
    assert verdict() == result, "what was allocated for one answer is given back before the next"


def test_more_copies_than_are_counted_are_at_least_so_many(stub):
    stub(STUB_NODES="3")
    assert (verdict().fits, verdict().exact) == (3, True)
    assert backends.get("fluxion").take(rainbow.parse_jobspec(TWO_CORES), cluster(SHAPE), ["node0"]).by_worker == {
        "node0": {"core": 2}
    }


@pytest.mark.parametrize(
    ("mode", "matched", "text"),
    [
        ("never", False, "Fluxion: not satisfiable"),
        ("crash", None, "backend fluxion: Fluxion's process ended by SIGABRT"),
        ("exit", None, "backend fluxion: Fluxion's process ended with exit code 3"),
        ("refuse", None, "backend fluxion: Fluxion refuses: the graph has no root"),
        ("garbage", None, "backend fluxion: JSONDecodeError"),
        ("elsewhere", None, "backend fluxion: IndexError"),
        ("short", None, "backend fluxion: what it allocated does not meet the request"),
    ],
)
def test_what_is_no_answer_leaves_a_cluster_undecided(stub, mode, matched, text):
    stub(mode)
    result = verdict()
    assert result.matched is matched
    assert result.reason.text.startswith(text)
    stub()
    assert verdict().matched, "the next question has a process of its own"


def test_a_library_that_hangs_is_left_after_its_time_limit(stub):
    stub("hang", seconds="0.2")
    assert verdict().reason.text == (
        "backend fluxion: Fluxion has not answered within its time limit (RAINBOW_FLUXION_SECONDS)"
    )


def test_what_cannot_be_put_to_fluxion_is_refused_in_words(stub):
    stub()
    need = {"requires": [{"name": "spack", "field": "version", "min": "1.0"}]}
    with pytest.raises(JobspecError, match=r"requirements of subsystems \(spack\) cannot be put to Fluxion"):
        verdict(**need)


def test_documents_say_the_same_as_ours():
    built = cluster("cluster(node*2(socket(core*2)memory:32GB))")
    laid_out = layout(built)
    text = graph_of(laid_out)
    assert '"type": "memory"' in text
    assert text.count('"type": "core"') == 4
    assert graph_of(laid_out, ["node1"]).count('"type": "core"') == 2
    request = rainbow.parse_jobspec({"resources": {"w": {"type": "core", "count": 2, "replicas": 3}}})
    assert '{"type": "slot", "count": 3, "label": "w", "with": [{"type": "core", "count": 2}]}' in jobspec_of(
        request, request.resources
    )
    whole = {"scheduling": {"graph": {"nodes": [{"metadata": {"uniq_id": 1, "exclusive": True}}]}}}
    others = held_by_others(json.dumps(whole), laid_out)
    assert set(others) == {laid_out.vertex(i) for i in range(laid_out.last[1], len(laid_out)) if laid_out.is_leaf(i)}


def test_over_http_the_backend_is_chosen_by_request(api, stub):
    oak = api.register("oak", grid(2, 2))

    def ask(nodes):  # each is another question: answers are remembered
        return {"jobspec": jobspec(nodes), "backend": "fluxion"}

    stub()
    answer = api.good("POST", "/v1/match", ask(1), oak.token)
    assert [one["cluster"] for one in answer["candidates"]] == ["oak"]
    stub("crash")
    answer = api.good("POST", "/v1/match", ask(2), oak.token)
    assert answer["candidates"] == []
    assert "SIGABRT" in str(answer["undecided"])
    stub("hang", seconds="0.2")
    assert "time limit" in str(api.good("POST", "/v1/match", ask(3), oak.token)["undecided"])
    assert api.good("POST", "/v1/match", {"jobspec": jobspec(1)}, oak.token)["candidates"], "the server goes on"


def test_a_library_that_is_not_there(api, monkeypatch, tmp_path):
    monkeypatch.delenv("RAINBOW_FLUXION", raising=False)
    oak = api.register("oak", grid(2, 2))
    answer = api.problem(
        422, "plugin-unknown", "POST", "/v1/match", {"jobspec": jobspec(1), "backend": "fluxion"}, oak.token
    )
    assert answer["detail"] == MISSING
    config = tmp_path / "rainbow.yaml"
    config.write_text("scheduler: {backend: fluxion}\n")
    with pytest.raises(ConfigError) as fault:
        read_config(config)
    assert (fault.value.message, fault.value.pointer) == (MISSING, "/scheduler/backend")
    monkeypatch.setenv("RAINBOW_FLUXION", str(tmp_path / "nowhere.so"))
    with pytest.raises(ConfigError, match=r"nowhere\.so"):
        read_config(config)


def test_a_server_that_has_the_library_starts_with_it(stub, tmp_path):
    stub()
    config = tmp_path / "rainbow.yaml"
    config.write_text("scheduler: {backend: fluxion}\n")
    assert read_config(config).backend == "fluxion"


@pytest.mark.skipif("RAINBOW_FLUXION" not in os.environ, reason="RAINBOW_FLUXION names no library of Fluxion's")
@pytest.mark.parametrize("nodes", [1, 3, 4])
def test_fluxion_itself_agrees_on_nodes(nodes):
    spec = {"resources": {"w": {"type": "node", "replicas": nodes, "with": [{"type": "core", "count": 4}]}}}
    result = rainbow.match(rainbow.parse_jobspec(spec), [cluster(SHAPE)], backend="fluxion")[0]
    assert result.matched is (nodes <= 3)
