"""Ten thousand waiting jobs canceled by a filter while others submit, and a server killed in the middle of it.

Figures are printed (`-s`): seconds of the cancel, and the rate of another user's submits before and meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow.client import Client
from rainbow.errors import RainbowError
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.support.ports import free_port

MANY = int(os.environ.get("RAINBOW_MANY", "10000"))
BASE = 5.0  # seconds in which the rate of submits is measured before


class Place:
    """A real server over a store, which may be killed and started again."""

    def __init__(self, folder: Path, database: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = folder / "rainbow.yaml"
        config.write_text(json.dumps({"scheduler": {"secret": REGISTRATION, "admin": ADMIN}}))
        self.words = ["serve", "--port", str(self.port), "--database", database, "--config", str(config)]
        self.log = (folder / "server.log").open("ab")
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-P", "-m", "rainbow", *self.words]
        self.server = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        with Client(self.url, timeout=2, tries=1) as client:
            while not client.ready():
                assert self.server.poll() is None
                time.sleep(0.1)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.server.pid, 9)
        self.server.wait()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    url = f"sqlite:///{tmp_path / 'rainbow.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    made = Place(tmp_path, url)
    yield made
    made.kill()


def filled(place: Place) -> str:
    """Register a cluster without an agent, and let MANY jobs of ann wait there; return the token."""
    with Client(place.url, REGISTRATION, timeout=60) as client:
        token = client.register_cluster("oak", grid(2, 4))["token"]
    with Client(place.url, token, timeout=120) as client:
        for begin in range(0, MANY, 1000):
            jobs = [{"jobspec": jobspec(), "requestor": "ann", "name": f"sweep-{begin + k}"} for k in range(1000)]
            answers = client.submit_batch(jobs[: MANY - begin])["answers"]
            assert all(one["status"] == 201 for one in answers)
    return token


def states(place: Place) -> Counter[str]:
    with Client(place.url, ADMIN, timeout=60) as client:
        return Counter(job["state"] for job in client.all_jobs(user="ann", limit=1000))


def ends_of(place: Place) -> Counter[str]:
    """Count for each job how often it was said to be canceled."""
    with Client(place.url, ADMIN, timeout=60) as client:
        answers = [event["data"] for event in client.stream(0, follow=False) if event["event"] == "job"]
    return Counter(one["job"] for one in answers if one["state"] == "CANCELED")


@pytest.mark.soak
def test_others_submit_while_ten_thousand_are_canceled(place: Place) -> None:
    token = filled(place)
    times: list[float] = []
    over = threading.Event()

    def submit() -> None:
        with Client(place.url, token, timeout=60) as client:
            while not over.is_set():
                client.submit(jobspec(), requestor="bob")
                times.append(time.monotonic())

    other = threading.Thread(target=submit)
    other.start()
    time.sleep(BASE)
    began = time.monotonic()
    with Client(place.url, token, timeout=120) as client:
        answer = client.change_many("cancel", where={"user": "ann", "name": "sweep-*"}, limit=MANY)
    seconds = time.monotonic() - began
    over.set()
    other.join()
    before = sum(began - BASE <= at < began for at in times) / BASE
    during = sum(began <= at < began + seconds for at in times) / seconds
    print(f"\n{MANY} canceled in {seconds:.1f} s; submits {before:.1f}/s before, {during:.1f}/s meanwhile")
    assert answer == {"done": MANY, "refused": []}
    assert states(place) == {"CANCELED": MANY}
    assert set(ends_of(place).values()) == {1}


@pytest.mark.soak
def test_a_server_killed_in_the_middle_is_repeated(place: Place) -> None:
    token = filled(place)
    where = {"user": "ann", "state": "waiting"}

    def cancel() -> None:
        with contextlib.suppress(RainbowError), Client(place.url, token, timeout=120, tries=1) as client:
            client.change_many("cancel", where=where, limit=MANY)

    asking = threading.Thread(target=cancel)
    asking.start()
    with Client(place.url, ADMIN, timeout=60) as client:
        while not next(iter(client.all_jobs(user="ann", state="CANCELED", limit=1)), None):
            time.sleep(0.01)
    place.kill()
    asking.join()
    place.start()
    between = states(place)
    print(f"\nkilled after {between['CANCELED']} of {MANY}")
    assert set(between) <= {"CANCELED", "WAITING"}
    with Client(place.url, token, timeout=120) as client:
        answer = client.change_many("cancel", where=where, limit=MANY)
    assert answer == {"done": between["WAITING"], "refused": []}
    assert states(place) == {"CANCELED": MANY}
    ends = ends_of(place)
    assert (len(ends), set(ends.values())) == (MANY, {1})
