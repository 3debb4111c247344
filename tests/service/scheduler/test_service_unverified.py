"""A start whose certificate is refused is not made; the job waits and says so, and all other jobs go on."""

from dataclasses import replace

from rainbow.matching import Occupancy
from tests.conftest import ADMIN
from tests.service.scheduler.test_service_located import site, submit

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


def test_a_falsified_start_is_not_made_and_others_start(api, monkeypatch):
    there = site(api, CASE, "load_based")
    monkeypatch.setattr(Occupancy, "take", falsified(Occupancy.take))
    first, false, last = (submit(api, there, job) for job in (cores(2), cores(3), cores(1)))
    offers = {offer["job"] for _ in range(3) for offer in there.take()}
    assert offers == {first, last}
    wait = api.good("GET", f"/v1/jobs/{false}/why", None, there.token)["wait"]
    assert wait["text"].startswith("internal error: the placement found does not meet the request (")
    assert counted(api, "refused") > 0


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
