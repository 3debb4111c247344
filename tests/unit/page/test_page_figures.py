"""Figures behind the page: the last 24 hours, and other rules on recorded decisions."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.page.words import ahead, band, ends, lines, when
from rainbow.service.core.pubsub import ALL, OFFERS, PubSub
from rainbow.service.placement.ledger import ComparisonTurn
from rainbow.service.queries import fleet
from rainbow.service.queries.fleet import EVERY, FIGURES, POINTS, Series, summary
from rainbow.service.scheduler.forecaster import Forecaster
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec
from tests.support.page_client import Browser, read, submit
from tests.unit.page.test_page import HOSTILE

FOLLOWS = {"X-Live": "1", "Accept-Encoding": "gzip"}
RULES = """\
scheduler:
  algorithms:
    selection:
      name: constraint
      options: {priorities: [{priority: 1, steps: [{sort_descending: cost}, {select: first}]}]}
"""


def note(api: Api, clock: Clock, seconds: float = EVERY) -> None:
    clock.now += seconds
    api.service.state(Series).take(api.service)


# ── the last 24 hours ──


def test_series_are_what_the_summary_said_at_each_time(api: Api, oak: Cluster, clock: Clock) -> None:
    elm = api.register("elm", grid(2, 2))
    clock.now = EVERY * 10_000_000
    note(api, clock)
    submit(api, oak.token, 3)
    submit(api, elm.token, 1)
    note(api, clock)
    offers = oak.take()
    begun = [{"task": one["id"], "attempt": one["attempt"], "event": "started"} for one in offers]
    oak.say("events", events=begun)
    note(api, clock)
    clock.now += 3 * EVERY  # nothing was noted: the server was away
    note(api, clock)
    answer = api.good("GET", "/v1/series", None, ADMIN)
    assert answer["waiting"] == [0, 4, 4 - len(offers), None, None, None, 4 - len(offers)]
    assert answer["running"] == [0, 0, len(offers), None, None, None, len(offers)]
    assert answer["started"] == [0, 0, len(offers), None, None, None, 0]
    [oaks, elms] = [api.good("GET", f"/v1/series?cluster={name}", None, ADMIN) for name in ("oak", "elm")]
    for key in FIGURES:
        assert [b if b is None else a - b for a, b in zip(answer[key], elms[key], strict=True)] == oaks[key]
    assert (answer["every"], answer["cluster"], oaks["cluster"]) == (EVERY, None, "oak")
    note(api, clock, POINTS * EVERY)
    assert api.good("GET", "/v1/series", None, ADMIN)["waiting"] == [4 - len(offers)]


def test_series_show_what_a_token_may_see(api: Api, oak: Cluster, clock: Clock) -> None:
    elm = api.register("elm", grid(2, 2))
    submit(api, oak.token, 3)
    submit(api, elm.token, 2)
    for _ in range(2):
        note(api, clock)
    assert api.good("GET", "/v1/series", None, elm.token)["waiting"] == [2, 2]
    assert api.call("GET", "/v1/series?cluster=oak", None, elm.token).status_code == 404
    assert api.call("GET", "/v1/series").status_code == 401
    assert api.call("GET", "/v1/series?cluster=%00%3Cscript%3E", None, elm.token).status_code == 404
    [own, every] = [Browser(api, token).get("/fleet") for token in (elm.token, ADMIN)]
    assert "2 now, 2 peak" in own
    assert "5 now, 5 peak" in every
    assert "3 now, 3 peak" in "".join(read(Browser(api, oak.token).get("/clusters/oak")).text)
    assert "<polyline" in every
    oak_id = api.service.catalogue["oak"].id
    api.good("DELETE", "/v1/clusters/elm?drain=true", None, elm.secret)
    note(api, clock)
    assert oak_id in api.service.state(Series)._known


values = st.lists(st.none() | st.integers(0, 10**6), max_size=POINTS)


@given(values)
def test_a_line_for_each_stretch_that_is_known_inside_its_box(drawn: Sequence[int | None]) -> None:
    results = [[tuple(map(float, point.split(","))) for point in line.split()] for line in lines(drawn, 160, 28)]
    places = [x for line in results for x, _ in line]
    assert places == sorted(places)
    assert all(0 <= x <= 160.5 and 1.9 <= y <= 26.1 for line in results for x, y in line)
    assert sum(map(len, results)) <= 120
    if len(drawn) <= 120:
        known = "".join(" " if one is None else "x" for one in drawn).split()
        assert [len(line) for line in results] == list(map(len, known))
    if any(drawn):
        assert min(y for line in results for _, y in line) == pytest.approx(2)


def test_series_of_1000_clusters_are_read_in_20_ms_and_take_12_mb(api: Api) -> None:
    ids = [f"c{k}" for k in range(1_000)]
    series = Series()
    series._known |= {one: np.zeros((POINTS, len(FIGURES)), np.float32) for one in ids}
    assert sum(one.nbytes for one in series._known.values()) < 12e6
    series._slots[:] = np.arange(POINTS)
    series.of([""], POINTS * EVERY)
    took = []
    for _ in range(5):
        begun = time.thread_time()
        series.of([""], POINTS * EVERY)
        took.append(time.thread_time() - begun)
    assert min(took) < 0.02


# ── what has changed ──


@given(st.lists(st.lists(st.sampled_from(["oak", "elm", "ash", f"{OFFERS}oak"]), max_size=3)))
def test_news_since_a_version_is_of_the_topics_whose_own_version_has_grown(told: list[list[str]]) -> None:
    news, seen = PubSub(), [(0, dict[str, int]())]
    topics = ("oak", "elm", "ash")
    for some in told:
        news.hear(some)
        seen.append((news.version(), {one: news.version(one) for one in topics}))
    for k, (version, before) in enumerate(seen):
        grown = {one for one in topics if news.version(one) > before.get(one, 0)}
        assert news.since(version) == (grown if all(told[k:]) else {ALL})


def test_one_of_those_who_follow_makes_the_answer_and_the_others_come_again(api: Api, oak: Cluster) -> None:
    looking, going, result = threading.Event(), threading.Event(), list[int]()

    def slow(*options: Any) -> Any:
        looking.set()
        assert going.wait(10)
        return summary(*options)

    def follow() -> int:
        return int(Browser(api, ADMIN).client.get("/fleet", headers=FOLLOWS).status_code)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "summary", slow)
        first = threading.Thread(target=lambda: result.append(follow()))
        first.start()
        assert looking.wait(10)
        assert follow() == 204
        going.set()
        first.join(10)
    assert (result, follow()) == ([200], 200)


# ── times that are over ──

NOW = 1_000_000.0
TIMES: list[tuple[str, str]] = [
    (ahead(NOW - 1, NOW), "any moment"),
    (ends(NOW - 1, NOW), "later than forecast"),
    (ends(None, NOW), "–"),
    (ends(NOW + 60, NOW, NOW + 30), when(NOW + 60)),
    (ends(NOW - 10, NOW, NOW - 70), when(NOW + 60)),  # 60 s from when it starts, which is not before now
    (band(NOW - 20, NOW - 10, NOW), "–"),
    (band(None, None, NOW), "–"),
    (band(NOW - 20, NOW + 10, NOW), f"{when(NOW - 20)} – {when(NOW + 10)}"),
]


@pytest.mark.parametrize(("said", "told"), TIMES)
def test_a_forecast_never_tells_of_times_that_are_over(said: str, told: str) -> None:
    assert said == told


def test_a_job_that_outlasts_its_forecast_is_not_expected_to_start(api: Api, oak: Cluster, clock: Clock) -> None:
    oak.take()
    [job] = submit(api, oak.token, jobspec=jobspec(duration=1_200))
    [offer] = oak.take()
    begun = {"task": offer["id"], "attempt": offer["attempt"], "event": "started"}
    oak.say("events", events=[begun])
    forecaster = Forecaster(api.service)
    for passed, words in ((0, "at most until its limit"), (700, "later than forecast")):
        clock.now += 1
        if not passed:
            forecaster.turn()
        clock.now += passed
        for path in (f"/jobs/{job}", "/clusters/oak?tab=plan", "/jobs"):
            text = "".join(read(Browser(api, oak.secret).get(path)).text)
            assert "any moment" not in text, path
            assert words in text or path != f"/jobs/{job}", text
        assert "cluster 1" not in "".join(read(Browser(api, oak.secret).get("/clusters/oak")).text)


# ── other rules ──


def test_the_api_the_page_and_the_command_compare_alike(api: Api, oak: Cluster) -> None:
    elm = api.register("elm", grid(2, 2))
    api.good("PUT", "/v1/clusters/oak/state", {"cost": 9}, oak.secret)
    api.good("PUT", "/v1/clusters/elm/state", {"cost": 1}, elm.secret)
    submit(api, ADMIN, 21)
    jobs = [job["id"] for job in api.good("GET", "/v1/jobs", None, ADMIN)["jobs"]]
    before = api.good("GET", "/v1/decisions", None, ADMIN)
    answer = api.good("POST", "/v1/policy:diff", {"config": RULES, "limit": 20}, ADMIN)
    assert answer["decisions"] == 20
    assert {one["id"] for one in answer["moved"]} <= set(jobs[:20])
    assert {one["new"] for one in answer["moved"]} == {"oak"}
    assert answer["gained"] == {"oak": len(answer["moved"]), "elm": -len(answer["moved"])}
    assert {one["step"] for one in answer["moved"]} == {"select first"}
    assert (answer["cut"], answer["refused"]) == (False, 0)
    assert "most expensive cluster" in answer["warnings"][0]
    page = Browser(api, ADMIN).post("/try", config=RULES, limit="20").get_data(as_text=True)
    assert f"20 decided again: {len(answer['moved'])} elsewhere" in "".join(read(page).text)
    assert all(f"/jobs/{one['id']}" in page for one in answer["moved"])
    assert api.good("GET", "/v1/decisions", None, ADMIN) == before


FAULTS: list[tuple[str, Any, int]] = [
    ("diff", {"config": RULES.replace("select: first", "select: [x")}, 422),
    ("diff", {"config": RULES, "limit": 1_001}, 400),
    ("diff", {"config": RULES, "limit": 0}, 400),
    ("diff", {"config": {"scheduler": {}}}, 400),
    ("diff", {}, 400),
    ("check", {"config": "scheduler: [", "policy": "load_based"}, 400),
    ("check", {"config": "scheduler: ["}, 422),
    ("check", {"policy": "load_based", "settings": {"classes": 3}}, 422),
    ("check", {"policy": "<script>"}, 422),
    ("check", {"settings": {}}, 400),
]


@pytest.mark.parametrize(("verb", "body", "status"), FAULTS)
def test_what_cannot_be_compared_is_refused_with_its_place(api: Api, verb: str, body: Any, status: int) -> None:
    answer = api.call("POST", f"/v1/policy:{verb}", body, ADMIN)
    assert answer.status_code == status, answer.json
    if status == 422 and "config" in body:
        assert answer.json["line"] >= 1


def test_comparisons_need_the_admin_and_checks_somebody_who_sets(api: Api, oak: Cluster) -> None:
    request = {"diff": {"config": RULES}, "check": {"policy": "load_based", "settings": {}}}
    codes = {
        (verb, token): api.call("POST", f"/v1/policy:{verb}", body, token).status_code
        for verb, body in request.items()
        for token in (ADMIN, oak.secret, oak.token, "")
    }
    assert [codes["diff", token] for token in (ADMIN, oak.secret, oak.token, "")] == [200, 403, 403, 401]
    assert [codes["check", token] for token in (ADMIN, oak.secret, oak.token, "")] == [200, 200, 403, 401]


def test_a_check_returns_what_would_hold(api: Api) -> None:
    answer = api.good("POST", "/v1/policy:check", {"config": RULES}, ADMIN)
    assert answer["selector"]["name"] == "constraint"
    answer = api.good(
        "POST", "/v1/policy:check", {"policy": "load_based", "settings": {"classes": {"default": 1}}}, ADMIN
    )
    assert "default" in answer["settings"]["classes"]
    answer = api.good("POST", "/v1/policy:check", {"config": "scheduler: {nothing: 1}"}, ADMIN)
    assert answer["warnings"]


def test_500_decisions_are_compared_in_2_s_and_one_at_a_time(api: Api, oak: Cluster) -> None:
    elm = api.register("elm", grid(2, 2))
    for name, one, cost in (("oak", oak, 9), ("elm", elm, 1)):
        api.good("PUT", f"/v1/clusters/{name}/state", {"cost": cost}, one.secret)
    spec = jobspec()
    for _ in range(5):
        jobs = [{"jobspec": spec} for _ in range(100)]
        api.good("POST", "/v1/jobs:batch", {"jobs": jobs}, ADMIN)
    begun = time.thread_time()
    reported = api.good("POST", "/v1/policy:diff", {"config": RULES, "limit": 500}, ADMIN)
    assert (reported["decisions"], reported["cut"]) == (500, False)
    assert time.thread_time() - begun < 2
    page = Browser(api, ADMIN).post("/try", config=RULES, limit="500").get_data(as_text=True)
    assert f"500 decided again: {len(reported['moved'])} elsewhere" in page
    with api.service.state(ComparisonTurn).lock:
        answer = api.call("POST", "/v1/policy:diff", {"config": RULES}, ADMIN)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")


def test_a_comparison_ends_after_its_seconds_and_says_so(api: Api, oak: Cluster) -> None:
    submit(api, oak.token, 3)
    seconds = iter([0.0, 0.1, 5.0, 5.0, 5.0])
    api.service.monotonic = lambda: next(seconds)
    answer = api.good("POST", "/v1/policy:diff", {"config": RULES}, ADMIN)
    assert (answer["decisions"], answer["cut"]) == (1, True)


@pytest.mark.parametrize("hostile", [*HOSTILE, "</textarea><script>alert(1)</script>", "\x00", "&amp;lt;"])
def test_hostile_rules_and_names_change_no_page(api: Api, oak: Cluster, clock: Clock, hostile: str) -> None:
    submit(api, oak.token, name=hostile, requestor=hostile[:100])
    for _ in range(2):
        note(api, clock)
    browser = Browser(api, ADMIN)
    texts = [browser.get(path) for path in ("/fleet", "/clusters/oak", "/clusters/oak?tab=queue")]
    for config in (hostile, json.dumps({"scheduler": {hostile: 1}}), RULES.replace("cost", json.dumps(hostile))):
        texts.append(browser.post("/try", config=config, limit=hostile).get_data(as_text=True))
        answer = api.call("POST", "/v1/policy:diff", {"config": config}, ADMIN)
        assert (answer.mimetype.endswith("json"), answer.status_code in (200, 422)) == (True, True), answer.json
    for text in texts:
        read(text)
        text = re.sub(r"<textarea.*?</textarea>", "", text, flags=re.S)  # what one sent comes back as it was
        assert [part for part in ("<script>alert", "<img src=x", "\u202e", "\x1b") if part in text] == []
