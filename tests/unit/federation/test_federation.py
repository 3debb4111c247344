"""A router in front of real shards: what users see is as of one server, also while a shard is away."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from click.testing import CliRunner

from rainbow.cli.main import main
from rainbow.client import Client, Problem
from rainbow.errors import RequestError
from rainbow.federation.upstream import Upstream
from rainbow.idempotency import made_at, new_key
from rainbow.service import Limits, Settings
from rainbow.store.credentials import digest
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.support.federated import ShardHere, register, router_of, shards_at, until
from tests.support.live import agent_of, running
from tests.support.ports import free_ports

CLUSTERS = [f"site{k}" for k in range(6)]


@dataclass
class Site:
    """Two shards, their router, and clusters registered through it."""

    url: str
    shards: list[ShardHere]
    made: dict[str, dict[str, str]]

    def client(self, *tokens: str, tries: int = 1) -> Client:
        return Client(self.url, list(tokens) or self.tokens, tries=tries)

    @property
    def urls(self) -> list[str]:
        return [shard.url for shard in self.shards]

    @property
    def tokens(self) -> list[str]:
        return [one["token"] for one in self.made.values()]

    def of(self, shard: ShardHere) -> set[str]:
        return {entry.cluster.name for entry in shard.service.catalogue.values()}

    def home(self, cluster: str) -> ShardHere:
        return next(shard for shard in self.shards if cluster in self.of(shard))

    def jobs(self) -> list[str]:
        return [job["id"] for shard in self.shards for job in Client(shard.url, ADMIN).all_jobs()]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        known = {"Authorization": ", ".join(f"Bearer {one}" for one in self.tokens), **headers}
        return httpx.request(method, self.url + path, json=body, headers=known, timeout=30)


@contextmanager
def site_at(folder: Path) -> Iterator[Site]:
    with shards_at(folder) as shards, router_of([shard.url for shard in shards]) as url:
        at = [shards[k % 2].url for k in range(len(CLUSTERS))]
        yield Site(url, shards, {name: register(at[k], name, state={"cost": k}) for k, name in enumerate(CLUSTERS)})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_at(tmp_path_factory.mktemp("site")) as result:
        yield result


@pytest.fixture
def frail(tmp_path: Path) -> Iterator[Site]:
    """A site of its own, whose shards may go."""
    with site_at(tmp_path) as result:
        yield result


def test_lists_are_of_all_shards_and_each_thing_is_found_at_its_own(site: Site) -> None:
    with site.client() as client:
        assert [one["name"] for one in client.clusters()] == CLUSTERS
        assert {client.cluster(name)["name"] for name in CLUSTERS} == set(CLUSTERS)
        placed = [client.submit(jobspec()) for _ in range(24)]
        assert {job["cluster"] for job in placed} & site.of(site.shards[0])
        assert {job["cluster"] for job in placed} & site.of(site.shards[1])
        ids = sorted((job["id"] for job in placed), reverse=True)
        every = [job["id"] for job in client.all_jobs()]
        assert set(ids) <= set(every)
        assert sorted(every, reverse=True) == every
        pages, cursor = [], None
        while not pages or cursor:
            page = client.jobs(limit=5, cursor=cursor)
            pages, cursor = pages + [job["id"] for job in page["jobs"]], page["next"]
        assert pages == every
        named = client.jobs(cluster=CLUSTERS[0])["jobs"]
        assert {job["cluster"] for job in named} <= {CLUSTERS[0]}
        counts = site.ask("GET", "/v1/jobs:counts?by=cluster").json()["counts"]
        assert sum(counts.values()) == len(every)
        assert {client.job(one)["id"] for one in ids} == set(ids)
        assert client.job(ids[0][:20])["id"] == ids[0]
        assert client.cancel(ids[0])["state"] == "CANCELED"
        assert "selection" in client.why(ids[1])["decision"]
        assert client.replay(ids[2])["equal"]
        with pytest.raises(Problem, match=r"several (shards|jobs)"):
            client.job(ids[0][:4])
        with pytest.raises(Problem, match=r"job f{24} not found"):
            client.job("f" * 24)


def test_a_new_router_finds_what_another_has_placed(site: Site) -> None:
    with site.client() as client:
        job = client.submit(jobspec())["id"]
    with router_of(site.urls) as other, Client(other, site.tokens, tries=1) as client:
        assert client.job(job)["id"] == job
        assert client.cancel(job)["state"] == "CANCELED"


def test_match_names_every_cluster(site: Site) -> None:
    with site.client() as client:
        result = client.match(jobspec())
        assert [one["cluster"] for one in result["candidates"]] == CLUSTERS
        assert [one["cluster"] for one in client.match(jobspec(nodes=3))["refusals"]] == CLUSTERS
        with pytest.raises(Problem) as refused:
            client.submit(jobspec(nodes=3))
        assert (refused.value.status, refused.value.code) == (422, "unsatisfiable")
        assert {one["cluster"] for one in refused.value.facts["refusals"]} == set(CLUSTERS)


CHEAPEST = [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]
RULES = [
    CHEAPEST,
    [{"priority": 1, "steps": [{"sort_descending": "cost"}, {"select": "first"}]}],
    [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "last"}]}],
    [{"priority": 1, "steps": [{"filter": "cost > 9"}]}, {"priority": 2, "steps": [{"filter": "cost >= 3"}]}],
    [{"priority": 1, "steps": [{"sort_ascending": "speed"}, {"select": "first"}]}],  # which one cluster alone states
]


def test_choice_is_that_of_one_server_with_all_clusters(site: Site, tmp_path: Path) -> None:
    with shards_at(tmp_path, 1) as [whole]:
        tokens = [register(whole.url, name, state={"cost": k})["token"] for k, name in enumerate(CLUSTERS)]
        for url in (site.url, whole.url):
            with Client(url, ADMIN) as admin:
                admin.change_state(CLUSTERS[4], {"speed": 7})
        with Client(whole.url, tokens) as one, site.client() as client:
            for selector in ({"name": "constraint", "options": {"priorities": rules}} for rules in RULES):
                expected = one.submit(jobspec(), selector=selector)["cluster"]
                for _ in range(2):
                    assert client.submit(jobspec(), selector=selector)["cluster"] == expected, selector


def test_a_named_cluster_is_the_only_one_asked(site: Site) -> None:
    with site.client() as client:
        assert {client.submit(jobspec(), clusters=[CLUSTERS[2]])["cluster"] for _ in range(4)} == {CLUSTERS[2]}
        some = CLUSTERS[1:4]
        assert {client.submit(jobspec(), clusters=some)["cluster"] for _ in range(30)} == set(some)
        with pytest.raises(Problem) as refused:
            client.submit(jobspec(), clusters=["nowhere"])
        assert refused.value.status == 404
    with Client(site.url, tries=1) as stranger:
        brought = [{"name": name, "token": site.made[name]["token"]} for name in some]
        assert stranger.submit(jobspec(), clusters=brought)["cluster"] in some


def test_batch_answers_each_job_in_order(site: Site) -> None:
    jobs = [{"jobspec": jobspec(), "name": f"job{k}"} for k in range(6)]
    with site.client() as client:
        result = client.submit_batch([*jobs, {"jobspec": jobspec(nodes=9)}, {"jobspec": {"version": 9}}])
        statuses = [one["status"] for one in result["answers"]]
        assert statuses == [201] * 6 + [422, 422]
        assert result["answers"][7]["pointer"].startswith("/jobs/7")
        assert [client.job(one["id"])["name"] for one in result["answers"][:6]] == [f"job{k}" for k in range(6)]
        with pytest.raises(Problem, match="one shard"):
            client.submit_batch(jobs, minimise="cost", selector={"name": "constraint"})


def test_versions_and_dependencies_stay_together(site: Site) -> None:
    with site.client() as client:
        first = client.submit(jobspec(), basis="nightly", tag="1")
        second = client.submit(jobspec(), basis="nightly", tag="2")
        assert client.job(first["id"])["state"] == "CANCELED"
        after = jobspec(dependencies=[{"scheme": "afterok", "type": "out", "value": second["id"]}])
        for _ in range(4):
            assert client.submit(after)["id"]


def test_an_agent_works_through_the_router(site: Site) -> None:
    name = CLUSTERS[0]
    with agent_of(site.url, name, site.made[name]["secret"]), site.client() as client:
        job = client.submit(jobspec(command=["true"]), clusters=[name])["id"]
        until(lambda: client.job(job)["state"] == "COMPLETED")
        events = site.ask("GET", f"/v1/events?cluster={name}&follow=false").text
        assert job in events
        assert "COMPLETED" in events
    assert site.ask("GET", "/v1/events").status_code == 409


def test_tokens_are_of_one_shard(site: Site) -> None:
    here, there = (sorted(site.of(shard)) for shard in site.shards)
    secrets = [site.made[name]["secret"] for name in CLUSTERS]
    with site.client(*secrets) as owner:
        minted = owner.mint_token([here[0]])
        assert len(owner.tokens()) >= 2 * len(CLUSTERS)
        with site.client(minted["token"]) as user:
            assert user.submit(jobspec())["cluster"] == here[0]
        rotated = owner.rotate_token(minted["id"])
        with site.client(rotated["token"]) as user:
            assert user.submit(jobspec())["cluster"] == here[0]
        owner.revoke_token(minted["id"])
        with site.client(rotated["token"]) as user, pytest.raises(Problem) as refused:
            user.submit(jobspec())
        assert refused.value.status in (401, 403)
        with pytest.raises(Problem, match="known to one shard"):
            owner.mint_token([here[0], there[0]])


# ── a shard is away ──


def test_others_go_on_while_a_shard_is_away_and_nothing_is_lost(frail: Site) -> None:
    lost, remaining = frail.shards
    with frail.client() as client:
        client.clusters()
        placed = [client.submit(jobspec()) for _ in range(12)]
        theirs = next(job["id"] for job in placed if job["cluster"] in frail.of(lost))
        until(lambda: frail.ask("GET", "/v1/jobs").json()["jobs"])
        lost.go()
        until(lambda: "away" in frail.ask("GET", "/v1/jobs").json())
        answer = frail.ask("GET", "/v1/clusters").json()
        states = {one["name"]: one["state"] for one in answer["clusters"]}
        assert {name for name, state in states.items() if state == "away"} == frail.of(lost)
        reason = next(one["reason"] for one in answer["clusters"] if one["state"] == "away")
        assert reason.startswith(f"away: shard {lost.url} does not answer since 20")
        assert answer["away"][0]["shard"] == lost.url
        listed = CliRunner().invoke(main, ["jobs", "--url", frail.url], env={"RAINBOW_TOKEN": ",".join(frail.tokens)})
        assert f"rainbow: warning: shard {lost.url} does not answer since" in listed.stderr
        assert {client.submit(jobspec(), idempotency_key=_later())["cluster"] for _ in range(8)} <= frail.of(
            remaining
        )
        placed = [client.submit(jobspec(), idempotency_key=_later()) for _ in range(2)]
        assert placed[0]["decision"]["away"][0]["shard"] == lost.url
        for refused in (lambda: client.job(theirs), lambda: client.cluster(next(iter(frail.of(lost))))):
            with pytest.raises(Problem, match=f"shard {lost.url} does not answer") as why:
                refused()
            assert why.value.status == 503
        with pytest.raises(Problem) as nowhere:
            client.submit(jobspec(nodes=9), idempotency_key=_later())
        assert nowhere.value.status == 503
        away = {one["cluster"] for one in nowhere.value.facts["refusals"] if one["reason"] == "away"}
        assert away == frail.of(lost)
        lost.come()
        until(lambda: "away" not in frail.ask("GET", "/v1/jobs").json())
        assert client.job(theirs)["id"] == theirs
        assert len(list(client.all_jobs())) == 22


def _later() -> str:
    """A key as of some seconds from now: made after what has just happened, whatever clocks may differ by."""
    moment = int((made_at(new_key()) or 0) * 1000) + 3_000
    return f"{moment:012x}"[:8] + "-" + f"{moment:012x}"[8:] + new_key()[13:]


def test_a_router_that_starts_while_a_shard_is_away_does_not_call_its_tokens_unknown(frail: Site) -> None:
    lost, remaining = frail.shards
    lost.go()
    theirs, ours = (next(iter(frail.of(shard))) for shard in (lost, remaining))
    with router_of(frail.urls) as other:
        with Client(other, frail.made[theirs]["token"], tries=1) as client, pytest.raises(Problem) as away:
            client.submit(jobspec())
        assert (away.value.status, away.value.facts["shard"]) == (503, lost.url)
        with Client(other, frail.made[ours]["token"], tries=1) as client:
            assert client.submit(jobspec(), idempotency_key=_later())["cluster"] == ours
        assert httpx.get(other + "/readyz").json()["status"] == "ready"
        remaining.go()
        until(lambda: httpx.get(other + "/readyz").status_code == 503)
        assert httpx.get(other + "/livez").status_code == 200


# ── the same key, the same job ──


@pytest.mark.parametrize("key", ["nightly", ""], ids=["any key", "a key that says when it was made"])
@pytest.mark.parametrize("selector", [None, {"name": "constraint", "options": {"priorities": CHEAPEST}}])
def test_one_key_is_one_job_by_any_router(site: Site, key: str, selector: Any) -> None:
    with ExitStack() as stack:
        one, other = stack.enter_context(site.client()), stack.enter_context(router_of(site.urls))
        two = stack.enter_context(Client(other, site.tokens, tries=1))
        before = len(site.jobs())
        for k in range(3):
            own = f"{key}{k}{selector}" if key else new_key()
            first = one.submit(jobspec(), selector=selector, idempotency_key=own)
            for client in (two, one, two):
                again = client.submit(jobspec(), selector=selector, idempotency_key=own)
                assert again["id"] == first["id"]
        assert len(site.jobs()) == before + 3
        if key:
            with pytest.raises(Problem) as other_request:
                two.submit(jobspec(nodes=2), selector=selector, idempotency_key=f"nightly0{selector}")
            assert other_request.value.status == 409


def test_a_key_that_may_be_at_a_shard_that_is_away_waits_for_it(frail: Site) -> None:
    lost = frail.shards[0]
    with frail.client() as client:
        keys = {new_key(): "" for _ in range(12)}
        for key in keys:
            keys[key] = client.submit(jobspec(), idempotency_key=key)["id"]
        client.submit(jobspec(), idempotency_key="by hand")
        lost.go()
        until(lambda: "away" in frail.ask("GET", "/v1/jobs").json())
        for key, job in keys.items():
            answer = frail.ask("POST", "/v1/jobs", jobspec(), **{"Idempotency-Key": key})
            assert answer.status_code in (200, 503)
            reported = answer.json()
            assert reported.get("id", job) == job
            assert answer.is_success or "may have a job of this Idempotency-Key" in reported["detail"]
            assert answer.is_success or reported["outcome"] == "unknown"
        with pytest.raises(Problem, match="may have a job"):
            client.submit(jobspec(), idempotency_key="by hand too")
        lost.come()
        until(lambda: "away" not in frail.ask("GET", "/v1/jobs").json())
        for key, job in keys.items():
            assert client.submit(jobspec(), idempotency_key=key)["id"] == job
        assert len(frail.jobs()) == 13


# ── strangers ──


def test_nothing_is_passed_on_that_the_api_does_not_know(site: Site) -> None:
    for path in ("/", "/fleet", "/v2/jobs", "/v1/nothing", "//evil.example/"):
        response = site.ask("GET", path)
        assert response.status_code in (200, 404), path
        assert response.headers["x-request-id"]
    assert site.ask("DELETE", "/v1/jobs").status_code == 405
    assert site.ask("GET", "/v1/jobs?shape=round").status_code == 400
    assert site.ask("GET", "/v1/usage").status_code == 409
    assert site.ask("GET", "/v1/jobs", **{"Rainbow-Shard": "http://evil.example"}).status_code == 404
    own = site.ask("GET", "/v1/clusters", **{"Rainbow-Shard": site.shards[0].url}).json()["clusters"]
    assert {one["name"] for one in own} == site.of(site.shards[0])
    for url in ("ftp://a", "http://", "http://user:pw@host", "http://host/path", "host:80"):
        with pytest.raises(RequestError, match="invalid URL of a shard"):
            Upstream(url)


def test_bodies_and_credentials_are_limited_as_by_a_server(tmp_path: Path) -> None:
    with shards_at(tmp_path) as shards:
        limits = Settings(limits=Limits(body=10_000))
        with router_of([shard.url for shard in shards], limits) as url:
            token = register(url, "oak")["token"]
            known = {"Authorization": f"Bearer {token}"}
            assert httpx.get(url + "/v1/clusters").status_code == 401
            assert httpx.post(url + "/v1/tokens", json={"clusters": ["oak"]}).status_code == 401
            stranger = httpx.get(url + "/v1/clusters", headers={"Authorization": b"Bearer rbt_wrong\xe9, Bearer x"})
            assert stranger.json()["code"] == "unauthenticated"
            assert httpx.post(url + "/v1/jobs", content=b"x" * 20_000, headers=known).status_code == 413
            bad = httpx.post(url + "/v1/jobs", content=b"{", headers={**known, "Content-Type": "application/json"})
            assert (bad.status_code, bad.headers["content-type"]) == (400, "application/problem+json")
            assert httpx.post(url + "/v1/jobs", json={"jobspec": {}, "nonsense": 1}, headers=known).status_code == 400
            assert httpx.post(url + "/v1/jobs", json={"version": 77}, headers=known).status_code == 422
            with pytest.raises(Problem, match="already exists"):
                register(url, "oak")
            for k in range(8):
                register(url, f"new{k}")
            homes = [{entry.cluster.name for entry in shard.service.catalogue.values()} for shard in shards]
            assert sum(map(len, homes)) == 9
            there = max(homes, key=len) - {"oak"}
            with pytest.raises(Problem, match="already exists"):  # also where it is not at home
                register(url, sorted(there)[0])


class Spy(BaseHTTPRequestHandler):
    """A shard that knows no credential, and keeps every word it is sent."""

    heard: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.heard.append(f"{self.path}\n{self.headers}\n{self.rfile.read(length).decode()}")
        self.send_response(200 if self.path == "/livez" else 401)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


def test_no_shard_is_sent_a_credential_that_it_does_not_know(tmp_path: Path) -> None:
    spy = ThreadingHTTPServer(("127.0.0.1", 0), Spy)
    Spy.heard.clear()
    with running(spy), shards_at(tmp_path, 1) as [shard]:  # type: ignore[arg-type]  # it has a port, too
        made = register(shard.url, "oak")
        known = made["token"], made["secret"], REGISTRATION
        with router_of([shard.url, f"http://127.0.0.1:{spy.server_address[1]}"]) as url, Client(url, known) as client:
            client.submit(jobspec(), clusters=[{"name": "oak", "token": made["token"]}])
            assert [one["name"] for one in client.clusters()] == ["oak"]
    text = "".join(Spy.heard)
    assert digest(made["token"]) in text
    assert not [secret for secret in (made["token"], made["secret"], REGISTRATION) if secret in text]


def test_a_shard_that_speaks_no_http_or_hangs_is_away(tmp_path: Path) -> None:
    nonsense = _babbler()
    with shards_at(tmp_path, 1) as [shard], router_of([shard.url, nonsense]) as url:
        assert httpx.get(url + "/readyz").json()["status"] == "ready"
        made = register(shard.url, "oak")
        with Client(url, made["token"], tries=1) as client:
            assert client.submit(jobspec(), idempotency_key=_later())["cluster"] == "oak"


def _babbler() -> str:
    listener = socket.create_server(("127.0.0.1", 0))

    def babble() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"\x00\xff no http \r\n\r\n" * 10)

    threading.Thread(target=babble, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_keys_sort_by_the_moment_they_were_made() -> None:
    keys = [new_key() for _ in range(100)]
    assert len(set(keys)) == 100
    moments = [made_at(key) or 0.0 for key in keys]
    assert moments == sorted(moments)
    assert made_at(f"{keys[0]}/7") == moments[0]
    assert [made_at(key) for key in ("", "x", "8c9e3c4e-0000-4000-8000-000000000000", json.dumps(grid(1, 1)))] == [
        None
    ] * 4


def test_the_commands_of_the_page_on_scale_serve_a_site(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "scale.md").read_text().split("```sh\n")[1].split("```")[0]
    ports = dict(zip(("8081", "8082", "8080"), map(str, free_ports(3)), strict=True))
    secrets = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION, "RAINBOW_ADMIN_TOKEN": ADMIN}
    processes = []
    for line in page.splitlines():
        words = re.sub(r"\d{4}\b", lambda result: ports[result[0]], line.removesuffix(" &")).split()
        words = [re.sub(r"postgresql://(db\d)/rainbow", rf"sqlite:///{tmp_path}/\1", word) for word in words]
        answer = (tmp_path / "log").open("a")
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", *words], env={**os.environ, **secrets}, stdout=answer, stderr=answer
            )
        )
    try:
        url = f"http://127.0.0.1:{ports['8080']}"
        until(lambda: all(_answers(f"http://127.0.0.1:{port}/readyz") for port in ports.values()), 60)
        made = [until(partial(_registered, url, name)) for name in CLUSTERS[:3]]
        with Client(url, [one["token"] for one in made]) as client:
            assert client.submit(jobspec())["cluster"] in CLUSTERS[:3]
            assert [one["name"] for one in client.clusters()] == CLUSTERS[:3]
    finally:
        for process in processes:
            process.terminate()
        assert [process.wait(30) for process in processes] == [0, 0, 0]


def _registered(url: str, name: str) -> dict[str, str] | None:
    """Register a cluster; None: the router has not found yet that the shard is up."""
    try:
        return register(url, name)
    except Problem as problem:
        if problem.status != 503:
            raise
        return None


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False
