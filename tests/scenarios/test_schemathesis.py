"""Schemathesis against the served OpenAPI document, with every check it has, on a server with something in it.

What is not checked, and why:

- `DELETE /v1/clusters/{name}` and `:drain` are about a cluster of their own, and no token there is is named, so that
  the rest of the run has a cluster, a job and its credentials to find.
- 422 counts as an answer to what the schemas allow: what makes a graph, a jobspec, a state or a policy is more than a
  schema of JSON says, and is refused so; 412 likewise, for no schema knows the revision. 400 does not count.
- 400 answers what the schemas allow only where an Idempotency-Key or a cursor is opaque: no schema says which of them
  are too easily guessed, or of no page.
- 413 is an answer as well: what is asked for is larger than the server allows, and no schema says so.
- 412 also answers what the schemas forbid: a precondition is looked at before the body (RFC 9110, 13.2.1).
- Events are asked for with `follow=false`: a stream that follows has no end. tests/unit/api/test_api_events.py reads
  those.
- `ensure_resource_availability` takes any cluster just created for the one that the paths name, which may have lost
  its subsystem or be deleted by then. tests/unit/api/test_api_clusters.py asks for what it has created.
- `object_level_authorization` is the second run's, which has two owners; the first has the administrator only. (It
  fails if every cluster is let be seen: it was tried.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from rainbow.client import Client
from rainbow.service import Limits
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import Processes
from tests.support import services
from tests.support.live import rainbow_at
from tests.support.ports import free_port

EXAMPLES = os.environ.get("RAINBOW_SCHEMATHESIS", "200")  # of each operation, in the long run
CONFIG = """
[parameters]
"path.name" = "oak"
"path.worker" = "n0"
"path.subsystem" = "io"
"path.job_id" = "{job}"

[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 412, 413, 422, 429]

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 412, 415, 422, 428, 429, "5xx"]

[checks.ensure_resource_availability]
enabled = false

[[operations]]
include-name = "DELETE /v1/clusters/{{name}}"
parameters = {{ "path.name" = "elm" }}
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 412, 413, 422, 429]

[[operations]]
include-path = "/v1/clusters/{{name}}:drain"
parameters = {{ "path.name" = "elm" }}

[[operations]]
include-path = "/v1/events"
parameters = {{ "query.follow" = "false" }}

[[operations]]
include-name = [
    "POST /v1/clusters", "POST /v1/tokens", "POST /v1/tokens/{{token_id}}:rotate",
    "POST /v1/clusters/{{name}}/reservations", "PATCH /v1/clusters/{{name}}/graph", "GET /v1/jobs",
]
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 412, 413, 422, 429]
"""
PEERS = """
[checks.positive_data_acceptance]
enabled = false

[[operations]]
include-path = "/v1/events"
parameters = { "query.follow" = "false" }

[auth.wfc]
path = "FOLDER/owners.json"
peers = ["oak", "elm"]
"""


@pytest.fixture(autouse=True)
def there() -> None:
    services.without("" if find_spec("schemathesis") else "schemathesis is not installed (pip install -e '.[dev]')")


def furnish(url: str, folder: Path, *, peers: bool = False) -> list[str]:
    """Register two clusters with a job and a token; return the options that make a run find them."""
    owners = {name: Client(url, REGISTRATION).register_cluster(name, grid(2, 2)) for name in ("oak", "elm")}
    job = Client(url, owners["oak"]["token"]).submit(jobspec())["id"]
    Client(url, ADMIN).mint_token(["oak"])
    bearers = {name: f"Bearer {answer['token']}, Bearer {answer['secret']}" for name, answer in owners.items()}
    header = [{"name": name, "fixedHeaders": [{"name": "Authorization", "value": b}]} for name, b in bearers.items()]
    (folder / "owners.json").write_text(json.dumps({"auth": header}))
    config = PEERS.replace("FOLDER", str(folder)) if peers else CONFIG.format(job=job)
    (folder / "schemathesis.toml").write_text(config)
    admin = [] if peers else ["-H", f"Authorization: Bearer {ADMIN}"]
    return ["--config-file", str(folder / "schemathesis.toml"), "run", f"{url}/openapi.json", *admin]


def run(folder: Path, options: list[str], *more: str, seconds: int = 580) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", *options, "--continue-on-failure", "--request-timeout", "20"]
    # its cache goes into the folder: what an earlier run found is no part of this one
    done = subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with rainbow_at(tmp_path, limits=Limits(wait=0.1)) as result:
        yield result


def test_administrator_finds_no_fault_of_ours(url: str, tmp_path: Path) -> None:
    run(tmp_path, furnish(url, tmp_path), "-n", "1", "--seed", "1")


def test_two_owners_find_nothing_of_each_other(url: str, tmp_path: Path) -> None:
    about_jobs = ["--include-path-regex", "^/v1/(jobs|match)", "--phases", "fuzzing"]
    run(tmp_path, furnish(url, tmp_path, peers=True), "-n", "8", "--seed", "1", *about_jobs)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_long_run_against_the_real_server_finds_no_fault_of_ours(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = f"sqlite:///{tmp_path}/rainbow.db"
    if kind == "postgresql":
        database = request.getfixturevalue("postgres_server").new_database()
    processes, port = Processes(tmp_path, database), free_port()
    (tmp_path / "rainbow.yaml").write_text("limits:\n  wait: 0.1\n")
    try:
        processes.start("serve", "--port", str(port), "--config", "rainbow.yaml")
        url = f"http://127.0.0.1:{port}"
        until(Client(url, tries=1).ready)
        run(tmp_path, furnish(url, tmp_path), "-n", EXAMPLES, seconds=3_000)
        assert "Traceback" not in (tmp_path / "0-serve.log").read_text()
    finally:
        processes.end()
