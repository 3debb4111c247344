"""Which files one request runs through: `python docs/design/walks.py [WALK]` counts them, with a name it lists them.

A service over SQLite in this process with the example clusters; every function of rainbow/ that runs in the request's
own thread is noted, imports are not.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rainbow.api import create_app  # noqa: E402 - the checkout that this file is in
from rainbow.service import Service, Settings  # noqa: E402
from rainbow.service.scheduler.step import step  # noqa: E402
from rainbow.store import open_store  # noqa: E402

CLUSTERS = ("heron", "juniper", "willow")
REGISTRATION, ADMIN = "rbr_of-the-walks", "rba_of-the-walks"


@contextmanager
def traced(results: set[str]) -> Iterator[None]:
    """Note the files of rainbow/ whose functions run."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_name != "<module>" and path.startswith(f"{ROOT}/rainbow/"):
            results.add(path.removeprefix(f"{ROOT}/rainbow/"))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


class Walks:
    """A service with some of the example clusters, and the walks through it."""

    def __init__(self, folder: str, clusters: tuple[str, ...]) -> None:
        self.clusters = clusters
        self.service = Service(
            open_store(f"sqlite:///{folder}/rainbow.db"), Settings(secret=REGISTRATION, admin=ADMIN)
        )
        self.client = create_app(self.service).test_client()
        self.files: dict[str, set[str]] = {}
        for name in clusters:
            graph = json.loads((ROOT / "graphs" / name / "cluster.json").read_text())
            self.call("POST", "/v1/clusters", {"name": name, "graph": graph}, REGISTRATION)
            self.call("POST", f"/v1/clusters/{name}/receive", {"agent": "a", "max": 1})

    def call(self, method: str, path: str, body: Any, credential: str = ADMIN) -> Any:
        """Send a request, which must succeed."""
        headers = {"Authorization": f"Bearer {credential}"}
        answer = self.client.open(path, method=method, json=body, headers=headers)
        if answer.status_code >= 300:
            raise SystemExit(f"{method} {path}: {answer.get_data(as_text=True)}")
        return answer.get_json()

    def walk(self, name: str, what: Callable[[], Any]) -> Any:
        """Do something and keep which files it ran through."""
        with traced(self.files.setdefault(name, set())):
            return what()

    def submit(self) -> str:
        """Submit the example of a job with two tasks; return where it goes."""
        jobspec = (ROOT / "jobspecs" / "reader-and-writer.yaml").read_text()
        cluster: str = self.call("POST", "/v1/jobs", {"jobspec": jobspec})["cluster"]
        return cluster

    def submits(self) -> None:
        """Submit a job, and the same again."""
        self.walk("submit, fresh", self.submit)
        self.walk("submit, the same again", self.submit)

    def step(self, policy: str) -> str:
        """Step the cluster that a job goes to under a policy; return which it is."""
        for name in self.clusters:
            self.call("PUT", f"/v1/clusters/{name}/scheduler", {"policy": policy, "settings": {}})
        cluster = self.submit()
        self.walk(f"step, {policy}", lambda: step(self.service, cluster))
        return cluster

    def agent(self, cluster: str) -> None:
        """Receive, accept and end the tasks that were started."""
        base, message = f"/v1/clusters/{cluster}", {"agent": "a", "max": 10}
        tasks = self.walk("agent: receive", lambda: self.call("POST", f"{base}/receive", message))["tasks"]
        runs = [{"id": task["id"], "attempt": task["attempt"]} for task in tasks]
        self.walk("agent: accept", lambda: self.call("POST", f"{base}/accept", {"agent": "a", "tasks": runs}))
        end = {"event": "ended", "result": "exited", "exit_code": 0}
        ends = [{"task": run["id"], "attempt": run["attempt"], **end} for run in runs]
        self.walk("agent: report an end", lambda: self.call("POST", f"{base}/events", {"agent": "a", "events": ends}))


def files_of_walks() -> dict[str, set[str]]:
    """Walk all walks, each policy's step in a service of its own, whose only cluster gets the job each time."""
    results: dict[str, set[str]] = {}
    for policy in ("", "load_based", "fair_share", "priority"):
        with tempfile.TemporaryDirectory() as folder:
            walks = Walks(folder, CLUSTERS[:1] if policy else CLUSTERS)
            if policy:
                cluster = walks.step(policy)
            else:
                walks.submits()
            if policy == "priority":
                walks.agent(cluster)
            walks.service.close()
            results |= walks.files
    return results


def main(target: str = "") -> None:
    """Print how many files each walk runs through, or the files of one."""
    results = files_of_walks()
    if target:
        print("\n".join(sorted(results[target])))
        return
    print("| walk | files | folders |\n|---|---|---|")
    for name, files in results.items():
        print(f"| {name} | {len(files)} | {len({Path(file).parent for file in files})} |")


if __name__ == "__main__":
    main(*sys.argv[1:2])
