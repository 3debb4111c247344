"""The API called with one credential at a time, and clusters written as shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rainbow.api import create_app
from rainbow.graph import write_jgf
from rainbow.testing import backends as shapes
from tests.conftest import REGISTRATION, WHOLE_WORKERS

SHARED = Path(__file__).parents[3] / "shared"


def shared_folder():
    """Return the folder of shared inputs; the test is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not beside this checkout")
    return SHARED


class RecallState:
    """Flask's test client with a credential by one word."""

    def __init__(self, client) -> None:
        self.client = client

    def __call__(self, verb, path, token=None, **more):
        headers = more.pop("headers", {})
        if token:
            headers["Authorization"] = f"Bearer {token}"
        answer = self.client.open(path, method=verb, headers=headers, **more)
        assert "Traceback" not in answer.get_data(as_text=True)
        return answer

    def register(self, name, shape, **more):
        """Register a cluster of a shape (rainbow/testing/backends.py) and return its {"token", "secret"}."""
        body = {"name": name, "graph": write_jgf(shapes.cluster(shape, name)), **more}
        answer = self("POST", "/v1/clusters", REGISTRATION, json=body)
        assert answer.status_code == 201, answer.get_data(as_text=True)
        return answer.json


def jobspec(cores=1, command=("true",), **more):
    """Write a jobspec of one slot."""
    resources = {"work": {"type": "core", "replicas": 1, "count": cores}}
    return json.dumps({"resources": resources, "tasks": [{"command": list(command), "resources": "work"}], **more})


# ── fixtures: a module that imports them has them ───────────────────────────────────────────────────────────


@pytest.fixture
def api(service):
    """The API of a service."""
    return RecallState(create_app(service).test_client())


@pytest.fixture
def cluster(api):
    """A registered cluster of two nodes of four cores, each for one job at a time: its {"token", "secret"}."""
    return api.register("one", "cluster(node*2(core*4))", policy=WHOLE_WORKERS)
