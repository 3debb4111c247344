"""A start whose certificate is refused is not made; the job waits and says so, and all other jobs go on.

Of a start that is made the certificate is kept, shown, and can be checked without the server.
"""

import json
from dataclasses import replace

import pytest

import rainbow
from rainbow.certificate.document import MOST_STORED, Certificate, Row, folded, read_certificate, unfolded
from rainbow.matching import Occupancy, faults_of
from rainbow.service.scheduler.step import refusal_reports, step
from tests.conftest import ADMIN
from tests.service.scheduler.test_service_located import asking, site, submit

CASE = {"shape": "node(core*8)"}


def cores(many, slots=1):
    return {"asks": {"type": "core", "count": many}, "slots": slots}


def falsified(take):
    """Return `Occupancy.take` that says of requests of three cores that they got one less."""

    def falsify(self, request, *rest, **more):
        holding = take(self, request, *rest, **more)
        if holding is not None and request.resources[0].children[0].count.min == 3:
            rows = [
                row._replace(amount=row.amount - 1) if row.how == "of" and row.amount > 1 else row
                for row in holding.take.rows
            ]
            holding.take = replace(holding.take, rows=tuple(rows[:-1]))
        return holding

    return falsify


def test_a_falsified_start_is_not_made_and_others_start(api, monkeypatch, tmp_path):
    api.service.folder = tmp_path
    there = site(api, CASE, "load_based")
    monkeypatch.setattr(Occupancy, "take", falsified(Occupancy.take))
    first, false, last = (submit(api, there, job) for job in (cores(2), cores(3), cores(1)))
    offers = {offer["job"]: offer for _ in range(3) for offer in there.take()}
    assert set(offers) == {first, last}
    wait = api.good("GET", f"/v1/jobs/{false}/why", None, there.token)["wait"]
    assert wait["text"].startswith("internal error: the placement found does not meet the request (")
    assert counted(api, "refused") > 0
    [file] = refusal_reports(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    refused = counted(api, "refused")
    assert [step(api.service, "oak") for _ in range(5)] == [False] * 5
    assert counted(api, "refused") == refused  # nothing has changed
    assert not api.service.poll_every_tick
    report = json.loads(file.read_text())
    assert (report["cluster"], report["graph"]) == ("oak", 1)
    assert report["rows"]
    assert report["faults"]
    there.end(offers[first])
    assert there.take() == []
    assert counted(api, "refused") > refused  # something has
    monkeypatch.undo()
    there.end(offers[last])
    assert [offer["job"] for offer in there.take()] == [false]


def test_starts_are_verified(api):
    there = site(api, CASE, "load_based")
    before = counted(api, "verified")
    jobs = {submit(api, there, job) for job in (cores(2), cores(3), cores(1, slots=2))}
    assert {offer["job"] for _ in range(3) for offer in there.take()} == jobs
    assert counted(api, "verified") - before >= len(jobs)


def counted(api, result):
    name = f'rainbow_certificates_total{{result="{result}"}} '
    lines = api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True).splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


POLICIES = ("load_based", "fair_share", "priority")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_start_keeps_its_certificate_which_is_checked_without_the_server(api, policy):
    there = site(api, CASE, policy)
    job = submit(api, there, cores(2, slots=3))
    nothing = api.problem(404, "not-found", "GET", f"/v1/jobs/{job}/certificate", None, there.token)
    assert nothing["detail"] == "no certificate: no task of it has started"
    assert len(there.take()) == 1
    said = api.good("GET", f"/v1/jobs/{job}/certificate", None, there.token)
    assert said["requests"] == ["slot it", "core × 2"]
    graph = api.good("GET", "/v1/clusters/oak/graph", None, there.secret)
    cluster = rainbow.read_cluster({"graph": graph["graph"]}, name="oak")
    request = rainbow.parse_jobspec(asking(cores(2, slots=3)))
    certificate = read_certificate(said)
    assert faults_of(request, cluster, certificate) == []
    assert faults_of(request, cluster, certificate, {"core0": None}) != []
    verified = api.good("GET", f"/v1/jobs/{job}/why", None, there.token)["verified"]
    assert (verified["slots"], verified["graph"]) == (3, 1)
    assert verified["text"].endswith("ms, graph revision 1")


def test_a_certificate_is_of_its_revision(api):
    there = site(api, CASE, "load_based")
    job = submit(api, there, cores(2))
    there.take()
    size = {"op": "resize", "vertex": "core7", "size": 16}
    api.good("PATCH", "/v1/clusters/oak/graph", {"changes": [size]}, there.secret)
    text = api.good("GET", f"/v1/jobs/{job}/why", None, there.token)["verified"]["text"]
    assert text.startswith("verified at revision 1, 1 slot in ")


def test_a_task_that_starts_again_has_the_certificate_of_that_start(api, clock):
    there = site(api, {"shape": "cluster(node(core*2), node(core*2))"}, "load_based")
    job = submit(api, there, cores(2))
    [offer] = there.take()
    before = api.good("GET", f"/v1/jobs/{job}/certificate", None, there.token)["rows"]
    [worker] = offer["placement"]
    there.end(offer, result="lost", exit_code=None)
    api.good("POST", f"/v1/clusters/oak/workers/{worker}:offline", None, there.secret)
    again = []
    for _ in range(3):
        clock.now += 1
        again += there.take()
    assert [one["attempt"] for one in again] == [2]
    after = api.good("GET", f"/v1/jobs/{job}/certificate", None, there.token)["rows"]
    assert before != after


def test_very_many_rows_are_kept_as_a_digest():
    rows = [Row(0, -1, "of", f"n{n}", 1) for n in range(MOST_STORED + 1)]
    few, many = (unfolded(folded(Certificate(0, tuple(rows[:n]), 3), 0.5)) for n in (MOST_STORED, MOST_STORED + 1))
    assert few.certificate == Certificate(0, tuple(rows[:MOST_STORED]), 3)
    assert (many.certificate, many.rows, len(many.sha256)) == (None, MOST_STORED + 1, 64)
    assert len(folded(Certificate(0, tuple(rows[:MOST_STORED]), 3), 0.5)) < 10 * MOST_STORED
