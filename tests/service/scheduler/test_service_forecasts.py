"""Forecasts of a running service: asked by those who may, right after restarts, and whatever goes wrong."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import TryLater
from rainbow.forecast import Key
from rainbow.scheduling import LoadBased
from rainbow.service.core.service import Outlook
from rainbow.service.live_state import mirror
from rainbow.service.scheduler import forecaster
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.step import step
from rainbow.store import schema, statistics
from tests.conftest import ADMIN, LONG, Api, Clock, Cluster, jobspec, open_service_at

POLICIES = ["load_based", "priority", "fair_share"]


def submit(
    oak: Cluster, count: int = 1, nodes: int = 2, cores: int = 2, duration: float = 600, **more: Any
) -> list[str]:
    """Submit jobs that fill so many nodes; return their ids."""
    spec = jobspec(nodes, duration=duration)
    spec["resources"][0]["with"][0]["with"][0]["count"] = cores
    return [oak.api.good("POST", "/v1/jobs", {"jobspec": spec, **more}, oak.token)["id"] for _ in range(count)]


def forecast(api: Api) -> Forecaster:
    made = Forecaster(api.service)
    made.turn()
    return made


def eta(oak: Cluster, job: str, *tokens: str) -> Any:
    return oak.api.good("GET", f"/v1/jobs/{job}/eta", None, *(tokens or (oak.token,)))


def at(clock: Clock, seconds: float) -> str:
    from rainbow.text import rfc3339

    return str(rfc3339(clock.now + seconds))


@pytest.fixture(autouse=True)
def at_full_speed(api: Api) -> None:
    """Let forecasts have a core: no test waits for their sleep."""
    api.service.settings = replace(api.service.settings, forecast_share=1.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_in_line_are_expected_one_after_the_other(oak: Cluster, clock: Clock, policy: str) -> None:
    oak.api.good("PUT", "/v1/clusters/oak/scheduler", {"policy": policy}, oak.secret)
    oak.say("heartbeat")
    jobs = submit(oak, 3)
    for offer in oak.take():
        oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
    forecast(oak.api)
    answers = [eta(oak, job) for job in jobs]
    assert answers[0]["how"] == "running"
    assert [one["start"] for one in answers[1:]] == [at(clock, 300), at(clock, 600)]  # half of each limit
    assert answers[2]["end"] == at(clock, 900)
    assert answers[2]["ahead"] == {"jobs": 1, "core_hours": round(4 * 300 / 3_600, 2)}
    assert (answers[2]["low"], answers[2]["high"], answers[2]["earned"]) == (None, None, False)
    assert answers[2]["text"] == "no forecast yet: 0 minutes of history"


def test_a_job_that_has_ended_is_told_so_while_the_last_forecast_still_knows_it(oak: Cluster) -> None:
    oak.say("heartbeat")
    runs, waits = submit(oak, 2)
    oak.take()
    forecast(oak.api)
    for job in (runs, waits):
        oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    answer = eta(oak, waits)
    assert (answer["state"], answer["how"], answer["start"]) == ("CANCELED", "unknown", None)
    assert answer["text"] == "the job has ended: CANCELED"


def test_a_cluster_that_schedules_for_itself_is_forecast_by_the_ends_of_what_it_has(
    oak: Cluster, clock: Clock
) -> None:
    body = {"policy": "delegate", "settings": {"max_handed_over": 1}}
    oak.api.good("PUT", "/v1/clusters/oak/scheduler", body, oak.secret)
    jobs = submit(oak, 3)
    step(oak.api.service, "oak")
    forecast(oak.api)
    assert [eta(oak, job)["start"] for job in jobs[1:]] == [at(clock, 300), at(clock, 600)]


def test_who_may_ask_when_a_job_starts(oak: Cluster) -> None:
    oak.say("heartbeat")
    [job] = submit(oak, requestor="ann")
    forecast(oak.api)
    zoe = oak.api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["zoe"]}, oak.secret)["token"]
    oak.api.problem(403, "forbidden", "GET", f"/v1/jobs/{job}/eta", None, zoe)
    assert oak.api.good("GET", f"/v1/jobs/{job}", None, zoe)["eta"] is None
    for token in (oak.token, oak.secret, ADMIN):
        assert eta(oak, job, token)["how"] == "ahead"
        assert oak.api.good("GET", f"/v1/jobs/{job}", None, token)["eta"]["how"] == "ahead"


def test_a_cluster_shows_its_forecast_page_by_page(oak: Cluster) -> None:
    oak.say("heartbeat")
    jobs = submit(oak, 3)
    forecast(oak.api)
    path = "/v1/clusters/oak/forecast?limit=2"
    first = oak.api.good("GET", path, None, oak.secret)
    assert ([one["id"] for one in first["jobs"]], first["next"], first["cut"]) == (jobs[:2], jobs[1], "all")
    after = oak.api.good("GET", f"{path}&after={first['next']}", None, oak.secret)
    assert ([one["id"] for one in after["jobs"]], after["next"]) == (jobs[2:], None)
    oak.api.problem(409, "conflict", "GET", f"{path}&after=nobody", None, oak.secret)
    oak.api.problem(400, "request-invalid", "GET", "/v1/clusters/oak/forecast?limit=0", None, oak.secret)


def test_a_forecast_survives_the_server_and_turns_out(
    oak: Cluster, clock: Clock, database: str, service: Any
) -> None:
    oak.say("heartbeat")
    jobs = submit(oak, 2)
    [offer] = oak.take()
    forecast(oak.api)
    again = open_service_at(database, clock)
    try:
        answer = Api(again).good("GET", f"/v1/jobs/{jobs[1]}/eta", None, oak.token)
        assert (answer["how"], answer["start"], answer["first"]["start"]) == ("ahead", at(clock, 300), at(clock, 300))
        clock.now += 60
        oak.say("heartbeat")
        oak.end(offer)
        oak.take()
        Forecaster(again).turn()
        assert Api(again).good("GET", "/v1/clusters/oak/forecast/accuracy", None, oak.secret)["starts"] == {
            "count": 1,
            "bias": pytest.approx(-1.0986, abs=1e-3),  # a minute in place of five, a minute added to both
            "factor_2": 0.0,
            "covered": None,  # of a band that was a guess
        }
    finally:
        again.close()


def bands(oak: Cluster, job: str) -> list[tuple[Any, Any]]:
    """Return the band of a job wherever one is shown; the surfaces must agree on whether there is any."""
    api = oak.api
    why = api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)
    line = next(
        one for one in api.good("GET", "/v1/clusters/oak/forecast", None, oak.secret)["jobs"] if one["id"] == job
    )
    listed = next(one for one in api.good("GET", "/v1/jobs", None, oak.token)["jobs"] if one["id"] == job)
    documents = (eta(oak, job), why["eta"], why["now"]["start"], line, listed["eta"])
    return [(one["low"], one["high"]) for one in documents]


def test_a_band_is_shown_where_the_cluster_has_earned_it_and_no_longer(oak: Cluster, clock: Clock) -> None:
    """From no score to 40, with bands that hold; then 40 of the last 100 bands are missed; then they hold again."""
    [entry] = oak.api.service.catalogue.values()
    waiting, scores = "", 0

    def score(count: int, missed: list[float]) -> str:
        """Let forecasts turn out; return what is said of the job that waits."""
        nonlocal scores
        with oak.api.service.store.write() as connection:
            fresh = {f"s{scores + k}": (k % 11 - 5) / 50 for k in range(count)}
            statistics.add_scores(connection, entry.id, fresh, missed)
        scores += count
        oak.say("heartbeat")
        forecast(oak.api)
        answer = eta(oak, waiting)
        shown = bands(oak, waiting)
        assert all(one == shown[0] for one in shown)
        assert (None in shown[0]) == bool(answer["text"]) == (not answer["earned"])
        now = oak.api.good("GET", f"/v1/jobs/{waiting}/why", None, oak.token)["now"]["start"]
        assert now["text"] == answer["text"]
        assert now["expected"] == (answer["start"] if answer["earned"] else None)
        return str(answer["text"])

    oak.say("heartbeat")
    waiting = submit(oak, 2)[1]
    oak.take()
    assert score(0, []) == "no forecast yet: 0 minutes of history"
    clock.now += 60
    assert score(0, []) == "no forecast yet: 1 minute of history"
    for count in (1, 12, 29):
        assert score(count - scores, []) == f"no forecast yet: {count} of 30 starts seen"
    assert score(1, []) == ""
    assert score(10, [0.0] * 10) == ""
    assert score(60, [0.0] * 44 + [1.0] * 16) == ""  # 54 of 70 held
    assert score(24, [1.0] * 24) == "no band: 54 of the last 94 held"
    assert score(6, [0.0] * 6) == "no band: 60 of the last 100 held"
    assert score(94, [0.0] * 94) == ""


def test_a_start_past_its_band_counts_as_missed_before_it_comes(oak: Cluster, clock: Clock) -> None:
    [entry] = oak.api.service.catalogue.values()
    with oak.api.service.store.write() as connection:
        statistics.add_scores(connection, entry.id, {f"{k}": k / 100 for k in range(-20, 20)}, [])
    oak.say("heartbeat")
    submit(oak, 2)
    oak.take()
    for waited, missed in ((0, []), (340, []), (100, [1.0])):  # expected after 300 s, at most e^0.16 times that
        clock.now += waited
        oak.say("heartbeat")
        forecast(oak.api)
        [answer] = oak.api.service.state(Outlook).every().values()
        assert list(answer.missed) == missed


def test_other_processes_read_the_room_that_was_stored(oak: Cluster, clock: Clock, database: str) -> None:
    oak.say("heartbeat")
    submit(oak)
    oak.take()
    forecast(oak.api)
    again = open_service_at(database, clock)
    try:
        [result] = Api(again).good("POST", "/v1/eta", jobspec(2, duration=60), oak.token)["candidates"]
        assert (result["known"], result["wait"]) == (True, 300)
    finally:
        again.close()


# ── what goes wrong ──


def test_a_policy_that_raises_makes_the_forecast_unknown_once_in_the_log_and_steps_go_on(
    oak: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = LoadBased.plan

    def fails(self: LoadBased, view: Any) -> Any:
        if view.quiet:
            raise ArithmeticError("too many")
        return plan(self, view)

    monkeypatch.setattr(LoadBased, "plan", fails)
    oak.say("heartbeat")
    jobs = submit(oak, 2)
    made = forecast(oak.api)
    made._due.clear()
    made._heard.clear()
    made.turn()
    answer = eta(oak, jobs[0])
    assert answer["how"] == "unknown"
    assert "ArithmeticError: too many" in answer["text"]
    assert oak.api.good("GET", "/v1/clusters/oak/forecast", None, oak.secret)["fault"]
    assert len(oak.take()) == 1
    said = capfd.readouterr()
    assert (said.out + said.err).count("forecast-failed") == 1


def test_a_clock_set_back_drops_the_forecast_until_the_next(oak: Cluster, clock: Clock) -> None:
    oak.say("heartbeat")
    jobs = submit(oak, 2)
    made = forecast(oak.api)
    assert eta(oak, jobs[1])["how"] == "ahead"
    clock.now -= 3_600
    assert eta(oak, jobs[1])["how"] == "unknown"
    made._due.clear()
    made._heard.clear()
    made.turn()
    assert eta(oak, jobs[1])["how"] == "ahead"


def test_without_lengths_and_limits_nobody_knows_and_says_why(oak: Cluster) -> None:
    oak.say("heartbeat")
    jobs = submit(oak, 2, duration=0)
    oak.take()
    forecast(oak.api)
    answer = eta(oak, jobs[1])
    assert (answer["how"], answer["start"]) == ("unknown", None)
    assert answer["text"] == "1 running task has no known end"
    [result] = oak.api.good("POST", "/v1/eta", jobspec(1, duration=60), oak.token)["candidates"]
    assert (result["known"], result["finish"]) == (False, None)


def test_a_job_that_waits_for_another_says_so(oak: Cluster) -> None:
    oak.say("heartbeat")
    [first] = submit(oak)
    spec = jobspec(1, duration=60, dependencies=[{"type": "out", "scheme": "afterok", "value": first}])
    second = oak.api.good("POST", "/v1/jobs", spec, oak.token)["id"]
    oak.take()
    forecast(oak.api)
    answer = eta(oak, second)
    assert answer["how"] == "unknown"
    assert first in answer["text"]


def test_a_cluster_whose_agent_is_away_says_so(oak: Cluster) -> None:
    [job] = submit(oak)
    forecast(oak.api)
    assert eta(oak, job)["text"] == "no worker is ready"


def test_a_server_that_makes_no_forecasts_says_so(oak: Cluster) -> None:
    oak.say("heartbeat")
    [job] = submit(oak)
    made = forecast(oak.api)
    assert eta(oak, job)["how"] == "ahead"
    oak.api.service.settings = replace(oak.api.service.settings, forecast_share=0.0)
    made.turn()
    assert "scheduler.forecast_share is 0" in eta(oak, job)["text"]


def test_ten_thousand_waiting_tasks_are_forecast_and_what_is_behind_them_says_so(
    oak: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 10_000 if LONG else 500
    monkeypatch.setattr(forecaster, "BOUNDS", replace(forecaster.BOUNDS, jobs=most))
    oak.say("heartbeat")
    spec = jobspec(1, duration=60)
    spec["tasks"][0]["count"] = {"total": 1}
    bag = {
        "version": 1,
        "resources": {"work": {"type": "core", "replicas": 1}},
        "tasks": [{"command": ["true"], "resources": "work", "replicas": most + 1}],
        "attributes": {"system": {"duration": 60}},
    }
    many = oak.api.good("POST", "/v1/jobs", bag, oak.token)["id"]
    last = oak.api.good("POST", "/v1/jobs", spec, oak.token)["id"]
    begin = time.thread_time()
    forecast(oak.api)
    assert time.thread_time() - begin < 60
    answer = eta(oak, many)
    assert (answer["how"], answer["start"]) == ("ahead", at(clock, 0))
    assert answer["end"] == at(clock, 30 * most / 4)
    behind = eta(oak, last)
    assert behind["how"] == "unknown"
    assert behind["text"]


def test_bookings_are_forgotten_with_the_next_forecast(oak: Cluster, clock: Clock) -> None:
    oak.say("heartbeat")
    made = forecast(oak.api)
    outlook = oak.api.service.state(Outlook)
    entry = oak.api.service.catalogue["oak"]
    answer = outlook.of(entry.id, clock.now)
    assert answer is not None
    assert answer.room is not None
    assert answer.room.at(clock.now)["core"] == 4
    made._due.clear()
    made._heard.clear()
    made.turn()
    assert outlook.every()[entry.id].at == clock.now


def test_migration_fills_lengths_with_what_ran_before(oak: Cluster, clock: Clock, service: Any) -> None:
    """Runs that ended before lengths were remembered say how long the next one takes."""
    oak.say("heartbeat")
    [job] = submit(oak, requestor="ann", name="train")
    [offer] = oak.take()
    [task] = oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"]
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    clock.now += 42
    oak.end(offer)
    entry = service.catalogue["oak"]
    key = Key(entry.id, "ann", "train", task["name"], task["slots"])
    path = next(Path(schema.__file__).parent.glob("migrations/versions/0015_*.py"))
    spec = importlib.util.spec_from_file_location("filled", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with service.store.write() as connection:
        learned = statistics.recent(connection, entry.id, [key])
        connection.execute(schema.lengths.delete())
        module._fill(connection)
        assert statistics.recent(connection, entry.id, [key]) == learned
        assert list(learned.values()) == [[42.0]] * 4


def test_a_cluster_whose_step_does_not_come_back_keeps_no_other_from_its_forecast(
    oak: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    elm = oak.api.register("elm")
    [job] = submit(elm)
    for one in (oak, elm):
        one.say("heartbeat")
    entries, current = oak.api.service.catalogue, mirror._current

    def taken(service: Any, entry: Any, until: float) -> Any:
        if entry.id == entries["oak"].id:
            raise TryLater("the policy of cluster oak does not come back", retry_after=30)
        return current(service, entry, until)

    monkeypatch.setattr(mirror, "_current", taken)
    forecast(oak.api)
    assert eta(elm, job)["how"] == "ahead"
    fault = oak.api.good("GET", "/v1/clusters/oak/forecast", None, oak.secret)["fault"]
    assert "does not come back" in fault


def test_a_turn_over_many_clusters_looks_again_who_is_dirty(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ash", "elm", "oak"):
        api.register(name).say("heartbeat")
    made, request, now = Forecaster(api.service), list[str](), [0.0]

    def slow(entry: Any) -> float:
        request.append(entry.cluster.name)
        now[0] += 2.0
        return 0.0

    monkeypatch.setattr(made, "_forecast", slow)
    monkeypatch.setattr(api.service, "monotonic", lambda: now[0])
    for _ in range(3):
        made.turn()
    assert sorted(request) == ["ash", "elm", "oak"]
    now[0] += 10.0
    api.service.tell(api.service.catalogue["elm"].id)
    made.turn()
    assert request[3:] == ["elm"]
