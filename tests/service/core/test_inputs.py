"""Upstream's own files, unmodified, and every block of the founding text at the door it is meant for."""

import json
import re

import pytest

import rainbow
from rainbow.service import settings_of
from tests.conftest import REGISTRATION
from tests.support.asking import api, shared_folder

__all__ = ["api"]  # fixtures


@pytest.fixture
def shared():
    return shared_folder()


def test_official_example_is_placed_every_time(api, shared):
    folder = shared / "inputs" / "rainbow" / "scheduler"
    graph = json.loads((folder / "cluster-nodes.json").read_text())
    made = api("POST", "/v1/clusters", REGISTRATION, json={"name": "keebler", "graph": graph}).json
    io = json.loads((folder / "cluster-io-subsystem.json").read_text())
    assert api("PUT", "/v1/clusters/keebler/subsystems/io", made["secret"], json=io).status_code == 200
    state = (folder / "cluster-state.json").read_bytes()
    assert api("PUT", "/v1/clusters/keebler/state", made["secret"], data=state).status_code == 200
    text = (folder / "jobspec-io.yaml").read_bytes()
    answers = [api("POST", "/v1/jobs", made["token"], data=text) for _ in range(100)]
    assert [(a.status_code, a.json["cluster"]) for a in answers] == [(201, "keebler")] * 100


def test_official_range_example(shared):
    folder = shared / "inputs" / "rainbow" / "match-algorithms" / "range"
    cluster = rainbow.read_cluster(json.loads((folder / "cluster-nodes.json").read_text()), name="spack-builder")
    cluster = cluster.with_subsystem("spack", json.loads((folder / "spack-subsystem.json").read_text()))
    valid, invalid = (
        rainbow.match(rainbow.parse_jobspec((folder / f"jobspec-{kind}-range.yaml").read_text()), [cluster])[0]
        for kind in ("valid", "invalid")
    )
    assert valid.matched
    assert not invalid.matched
    for part in ("0.5.2", "0.7.1", "0.7.5"):
        assert part in invalid.reason.text


def blocks(shared):
    text = (shared / "seeds" / "rainbow-algorithms.md").read_text()
    return [(kind, block) for kind, block in re.findall(r"```(\w*)\n(.*?)```", text, re.S) if kind != "console"]


def test_every_block_of_the_founding_text_is_accepted_by_its_door(api, shared):
    secret = api.register("keebler", "cluster(node(core*4))")["secret"]
    doors = []
    for kind, block in blocks(shared):
        if kind == "json":
            vertex = json.loads("{" + block.strip().rstrip(",") + "}")  # it is one entry of `nodes`
            graph = {"graph": {"nodes": vertex, "edges": [{"source": "node0", "target": "spack1"}]}}
            assert api("PUT", "/v1/clusters/keebler/subsystems/spack", secret, json=graph).status_code == 200
            doors.append("vertex")
        elif kind == "":
            assert api("PUT", "/v1/clusters/keebler/state", secret, data=block).status_code == 200
            doors.append("state")
        elif block.startswith("scheduler:"):
            assert settings_of(block).selector == "constraint"
            doors.append("configuration")
        else:
            assert rainbow.parse_jobspec(block).resources
            doors.append("jobspec")
    assert doors == ["jobspec", "jobspec", "jobspec", "vertex", "jobspec", "state", "configuration"]
