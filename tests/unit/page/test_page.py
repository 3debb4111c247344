"""The page without a browser: HTML, headers, hostile fields, and figures equal to the API's."""

from __future__ import annotations

import gzip
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import sqlalchemy as sa
import yaml

from rainbow.cli import main
from rainbow.page.frame import HEADERS, Copies
from rainbow.page.words import clean
from rainbow.service.core import sessions
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec
from tests.support.page_client import Browser, every_page, read, submit

ROOT = Path(__file__).parents[3]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}${7*7}",
    "\u202etxt.exe\u2066",
    "\x1b[31mred\x1b]0;title\x07",
    "a" * 100,
]


# ── every page ──


def test_every_page_is_sound_on_an_empty_server_with_jobs_and_with_hostile_names(api: Api, oak: Cluster) -> None:
    cluster = api.register("elm", grid(3, 2))
    ids = [submit(api, oak.token, name=text, requestor=text[:100])[0] for text in HOSTILE]
    offers = oak.take()
    for offer, text in zip(offers, HOSTILE, strict=False):
        oak.end(offer, output=f"{text}\n" * 3, result="exited", exit_code=1)
    admin = Browser(api, ADMIN, acts=True)
    of_jobs = [f"/jobs/{job}" for job in ids]
    for path in [*every_page(api, oak.name, ids[0]), *every_page(api, cluster.name), *of_jobs]:
        if path in ("/login", "/jobs/0000"):
            continue
        text = admin.get(path)
        if not text.startswith(("{", "[")):
            read(text)
            assert "<script>alert" not in text
            assert "\u202e" not in text
            assert "\x1b" not in text
            assert max(map(len, re.findall(r"a{50,}", text)), default=0) <= 300


def deceiving(text: str) -> dict[str, Any]:
    """A cluster whose nodes, properties and units are called so."""
    document = grid(2, 1)
    nodes = document["graph"]["nodes"]
    for k in range(2):
        nodes[f"n{k}"]["metadata"] |= {"name": f"{text}{k}", "properties": {text: text}, "unit": text}
    return document


def test_no_field_that_a_user_sets_becomes_markup_or_breaks_a_page(api: Api) -> None:
    text = HOSTILE[0] + HOSTILE[1]
    ash = api.register("ash", deceiving(text))
    api.good("PUT", "/v1/clusters/ash/state", {"note": text}, ash.secret)
    api.good("PUT", "/v1/accounts/bio", {"shares": 2, "users": {text: {}}}, ADMIN)
    spec = jobspec(1, ["sh", "-c", text], job={"name": text}, environment={"A": text}, comment=text, queue=text)
    spec["attributes"]["user"] = {text: text}
    job = submit(api, ash.token, jobspec=spec, name=text, requestor=text, basis="b", tag="t")[0]
    offers = [*ash.take(), *ash.take()]
    ash.end(offers[0], output="x" * 1_000_000 + text, errors=text, detail=text, result="exited", exit_code=1)
    api.good("POST", "/v1/tokens", {"clusters": ["ash"], "requestors": [text], "name": text}, ADMIN)
    browser = Browser(api, ADMIN, acts=True)
    worker = quote(f"{text}0")
    extra = (f"/clusters/ash?worker={worker}", "/clusters/ash/drain?workers=n0&verb=drain", f"/match?job={job}")
    for path in [*every_page(api, "ash", job), *extra]:
        answer = browser.client.get(path).get_data(as_text=True)
        if not answer.startswith(("{", "[")) and path != "/login":
            read(answer)
            assert "<script>alert" not in answer, path
            assert "<img src=x" not in answer, path
            assert max(map(len, re.findall(r"x{50,}", answer)), default=0) <= 2_000, path
    for fields in ({"jobspec": text}, {"jobspec": yaml.safe_dump(spec)}):
        read(browser.post("/match", **fields).get_data(as_text=True))
    read(browser.post("/try", config=text).get_data(as_text=True))


def test_every_page_carries_exactly_the_headers_and_nothing_inline(api: Api, oak: Cluster) -> None:
    [job] = submit(api, oak.token)
    browser = Browser(api, ADMIN)
    for path in [*every_page(api, "oak", job), "/jobs/0000", "/clusters/none"]:
        answer = browser.client.get(path, headers={"Accept-Encoding": "gzip"})
        assert {key: answer.headers.get(key) for key in HEADERS} == HEADERS, path
        assert "Server" not in answer.headers
        if answer.mimetype == "text/html":
            assert answer.headers["Cache-Control"] == "no-store"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert "require-trusted-types-for 'script'" in HEADERS["Content-Security-Policy"]


def test_links_of_every_page_lead_somewhere(api: Api, oak: Cluster) -> None:
    [job] = submit(api, oak.token)
    browser = Browser(api, ADMIN)
    links = {link for path in every_page(api, "oak", job) for link in read_html(browser, path)}
    inner = {link.partition("#")[0] for link in links if link.startswith("/")}
    assert not [link for link in links if link.startswith(("http:", "https:", "//", "javascript:"))]
    for link in sorted(inner):
        assert browser.client.get(link).status_code in (200, 303), link


def read_html(browser: Browser, path: str) -> list[str]:
    answer = browser.client.get(path)
    return read(answer.get_data(as_text=True)).links if answer.mimetype == "text/html" else []


def test_static_files_are_named_by_their_content_and_kept(api: Api) -> None:
    [style] = [link for link in read(Browser(api).get("/login")).links if link.endswith(".css")]
    answer = Browser(api).client.get(style)
    assert (answer.status_code, answer.mimetype) == (200, "text/css")
    assert "immutable" in answer.headers["Cache-Control"]
    assert Browser(api).client.get("/static/old/page.css").headers["Cache-Control"] == "no-cache"
    assert Browser(api).client.get("/static/x/frame.py").status_code == 404


def test_the_root_sends_browsers_to_the_page_and_programs_nowhere(api: Api) -> None:
    client = api.app.test_client()
    browser = client.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (browser.status_code, browser.headers["Location"]) == (303, "/fleet")
    assert client.get("/", headers={"Accept": "*/*"}).get_json()["service"] == "rainbow"


# ── what is shown ──


def test_what_does_not_exist_for_a_caller_is_not_found(api: Api, oak: Cluster) -> None:
    elm = api.register("elm")
    [job] = submit(api, elm.token)
    browser = Browser(api, oak.token)
    assert "elm" not in browser.get("/fleet")
    assert "not found" in browser.get(f"/jobs/{job}", 404)


def test_figures_of_the_fleet_are_those_of_the_api(api: Api, oak: Cluster, clock: Clock) -> None:
    api.register("elm", grid(5, 2))
    submit(api, oak.token, 12)
    oak.take()
    clock.now += 600
    answer = api.good("GET", "/v1/summary", None, ADMIN)
    text = "".join(read(Browser(api, ADMIN).get("/fleet")).text)
    assert answer["jobs"] == {"running": 0, "waiting": 12, "unplaced": 0}
    assert (answer["clusters"], answer["workers"]["all"]) == (2, 7)
    for figure in (answer["clusters"], answer["jobs"]["waiting"], answer["jobs"]["running"]):
        assert str(figure) in text
    [first] = [one for one in answer["first"] if one["name"] == "oak"]
    assert first["oldest_job"]["job"] in Browser(api, ADMIN).get("/fleet")
    assert clean(first["why"]) in text
    counts = api.good("GET", "/v1/jobs:counts?by=state", None, ADMIN)["counts"]
    assert counts["WAITING"] == answer["jobs"]["waiting"]


def test_accounts_show_the_tree_with_shares_use_factors_and_budgets(api: Api, oak: Cluster) -> None:
    api.good("PUT", "/v1/accounts/bio", {"shares": 2, "budget": {"amount": 7}, "users": {"ann": {}}}, ADMIN)
    api.good("PUT", "/v1/accounts/dna", {"parent": "bio", "users": {"<script>": {}}}, ADMIN)
    page = Browser(api, ADMIN).get("/accounts")
    for part in ("bio", "· dna", "7 of 7", "1.0000", "&lt;script&gt;"):
        assert part in page
    body = {"jobspec": jobspec(duration=9), "requestor": "ann"}
    job = api.good("POST", "/v1/jobs", body, oak.token)["id"]
    assert "account bio has used 0 % of its share" in Browser(api, oak.token).get(f"/jobs/{job}")


def test_a_job_shows_the_clusters_that_match_and_why_others_do_not(api: Api, oak: Cluster) -> None:
    api.register("elm", grid(1, 1))
    [job] = submit(api, ADMIN)
    text = "".join(read(Browser(api, ADMIN).get(f"/jobs/{job}")).text)
    answer = api.good("GET", f"/v1/jobs/{job}/why", None, ADMIN)
    for refusal in answer["decision"]["refusals"]:
        assert refusal["text"] in text
    assert answer["wait"]["text"] in text
    assert "verify" not in text
    assert "Can it ever run here?" in "".join(read(Browser(api, ADMIN).get(f"/jobs/{job}?verify")).text)


def test_a_decision_among_many_clusters_is_shown_in_part_and_whole_on_request(api: Api) -> None:
    for number in range(55):
        api.register(f"oak{number}", grid(1, 1))
    [job] = submit(api, ADMIN)
    browser = Browser(api, ADMIN)
    assert "5 more clusters" in browser.get(f"/jobs/{job}")
    whole = browser.get(f"/jobs/{job}?all")
    read(whole)
    assert all(f"/clusters/oak{number}" in whole for number in range(55))


def test_jobs_are_filtered_sorted_and_paged(api: Api, oak: Cluster) -> None:
    ids = submit(api, oak.token, 40)
    browser = Browser(api, oak.token)
    first = browser.get("/jobs?state=WAITING&sort=oldest&cluster=oak")
    rows = re.findall(r'data-key="(\w+)"', first)
    assert rows == ids[:25]
    following = re.search(r'rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")  # type: ignore[index]
    assert re.findall(r'data-key="(\w+)"', browser.get(following)) == ids[25:]
    assert "No job matches" in browser.get("/jobs?state=FAILED")
    assert "unknown job state" in browser.get("/jobs?state=NONE", 400)
    oldest = api.good("GET", "/v1/jobs?sort=oldest&limit=2", None, oak.token)["jobs"]
    assert [job["id"] for job in oldest] == ids[:2]


def test_reads_of_a_page_do_not_grow_with_clusters(api: Api) -> None:
    api.register("oak0", grid(1, 1))
    browser, counted = Browser(api, ADMIN), []
    statements: list[str] = []
    sa.event.listen(api.service.store.engine, "before_cursor_execute", lambda *answer: statements.append(answer[2]))
    for more in range(1, 3):
        browser.get("/fleet")
        statements.clear()
        for path in ("/fleet", "/jobs", "/clusters"):
            browser.get(path)
        counted.append(len(statements))
        for k in range(20 * (more == 1)):
            api.register(f"oak{more}{k}", grid(1, 1))
    assert counted[1] <= counted[0] + 4


def test_reads_of_a_queue_do_not_grow_with_jobs(api: Api, oak: Cluster) -> None:
    browser, counted, statements = Browser(api, ADMIN), [], list[str]()
    sa.event.listen(api.service.store.engine, "before_cursor_execute", lambda *answer: statements.append(answer[2]))
    browser.get("/clusters/oak?tab=queue")  # who asks is remembered from now on
    for more in (1, 20):
        submit(api, oak.token, more)
        statements.clear()
        browser.get("/clusters/oak?tab=queue")
        counted.append(len(statements))
    assert counted[0] == counted[1]


def test_those_who_follow_share_one_answer_and_together_a_part_of_a_core(
    api: Api, oak: Cluster, clock: Clock
) -> None:
    def follow(browser: Browser) -> Any:
        return browser.client.get("/fleet", headers={"X-Live": "1", "Accept-Encoding": "gzip"})

    first, second, other = Browser(api, ADMIN), Browser(api, ADMIN), Browser(api, oak.token)
    answer = follow(first)
    assert (answer.status_code, b'name="form" value=""' in gzip.decompress(answer.data)) == (200, True)
    api.service.state(Copies).busy = api.service.monotonic() + 100
    assert follow(second).data == answer.data
    submit(api, oak.token)
    assert follow(second).data == answer.data  # making it again and again would take too much
    clock.now += 9
    api.service.state(Copies).busy += 9
    for browser in (second, other):
        later = follow(browser)
        assert (later.status_code, later.data) == (204, b"")
        assert int(later.headers["Retry-After"]) >= 1
    assert "jobs waiting" in second.get("/fleet")
    api.service.state(Copies).busy = 0
    assert follow(second).data != answer.data


def test_the_page_can_be_turned_off(api: Api) -> None:
    settings = api.service.settings
    api.service.settings = replace(settings, server=replace(settings.server, page=False))
    client = api.app.test_client()
    assert client.get("/login").status_code == 404
    assert client.get("/", headers={"Accept": "text/html"}).get_json()["service"] == "rainbow"


# ── before anything is done ──

NOWHERE = """\
version: 1
resources:
  - {type: node, count: 90, with: [{type: slot, count: 1, label: it, with: [{type: core, count: 1}]}]}
tasks: [{command: [x], slot: it, count: {per_slot: 1}}]
attributes: {system: {duration: 60}}
"""


def test_where_would_it_run_says_why_not_and_makes_no_job(api: Api, oak: Cluster) -> None:
    browser = Browser(api, oak.token)
    text = browser.post("/match", jobspec=NOWHERE).get_data(as_text=True)
    answer = api.good("POST", "/v1/match", {"jobspec": NOWHERE, "explain": True}, oak.token)
    read(text)
    assert "0 of 1 clusters match" in text
    assert answer["refusals"][0]["text"] in text
    assert answer["refusals"][0]["explanation"]["change"]["text"] in text
    wrong = browser.post("/match", jobspec="version: 1\nresources: [\n")
    assert wrong.status_code == 422
    assert "line " in wrong.get_data(as_text=True)
    assert api.good("GET", "/v1/jobs", None, oak.token)["jobs"] == []


def test_what_was_tried_is_submitted_by_those_who_may_act(api: Api, oak: Cluster) -> None:
    good = NOWHERE.replace("90", "1")
    assert Browser(api, oak.token).post("/ui/submit", jobspec=good).status_code == 403
    browser = Browser(api, oak.token, acts=True)
    to = browser.post("/ui/submit", jobspec=good, name="tried").headers["Location"]
    assert "tried" in browser.get(to)
    assert "resources" in browser.get(to.replace("/jobs/", "/match?job="))


RULES = """\
scheduler:
  algorithms:
    selection:
      name: constraint
      options: {priorities: [{priority: 1, steps: [{sort_descending: cost}, {select: first}]}]}
"""


def test_other_priorities_are_compared_and_not_applied(api: Api, oak: Cluster) -> None:
    elm = api.register("elm", grid(2, 2))
    api.good("PUT", "/v1/clusters/oak/state", {"cost": 9}, oak.secret)
    api.good("PUT", "/v1/clusters/elm/state", {"cost": 1}, elm.secret)
    submit(api, ADMIN, 6)
    chosen = [job["cluster"] for job in api.good("GET", "/v1/jobs", None, ADMIN)["jobs"]]
    text = "".join(read(Browser(api, ADMIN).post("/try", config=RULES).get_data(as_text=True)).text)
    assert f"6 decided again: {chosen.count('elm')} elsewhere" in text
    wrong = Browser(api, ADMIN).post("/try", config=RULES.replace("select: first", "select: [x"))
    assert (wrong.status_code, "line " in wrong.get_data(as_text=True)) == (422, True)
    assert Browser(api, oak.token).post("/try", config=RULES).status_code == 403


# ── workers ──


def test_a_worker_is_drained_after_a_preview(api: Api, oak: Cluster) -> None:
    oak.take()
    submit(api, oak.token, 2)
    oak.take()
    looks, acts, other = Browser(api, oak.secret), Browser(api, oak.secret, acts=True), Browser(api, oak.token)
    text = looks.get("/clusters/oak/drain?workers=n[0-1]&verb=drain")
    assert "This session is read-only" in text
    assert "0 of 2" in text
    other.get("/clusters/oak/drain?workers=n0", 403)
    looks.get("/clusters/oak/drain?workers=n9", 404)
    assert acts.post("/ui/clusters/oak/drain", workers="n0").status_code == 303
    answer = api.good("GET", "/v1/clusters/oak/workers/n0", None, oak.secret)
    assert answer["state"] == "DRAINING"
    assert "DRAINING" in acts.get("/clusters/oak?worker=n0")
    assert acts.post("/ui/clusters/oak/reinstate", workers="n0").status_code == 303
    assert acts.post("/ui/clusters/oak/drain").status_code == 303
    assert "drained since" in acts.get("/clusters/oak")


def test_letters_of_the_map_are_the_workers_in_order(api: Api, oak: Cluster) -> None:
    oak.take()
    submit(api, oak.token)
    oak.take()
    [kind] = api.good("GET", "/v1/clusters/oak/occupancy", None, oak.token)["kinds"]
    assert kind["names"] == [["n", 0, 2]]
    assert sorted(kind["levels"]["core"]) == ["0", "5"]
    assert (kind["nodes"], kind["taken"], kind["idle"], kind["away"]) == (2, 1, 1, 0)
    api.good("POST", "/v1/clusters/oak/workers/n1:offline", None, oak.secret)
    [kind] = api.good("GET", "/v1/clusters/oak/occupancy", None, oak.token)["kinds"]
    assert kind["levels"]["taken"][1] == "O"


def test_bars_are_what_ran_and_runs_in_the_window(api: Api, oak: Cluster, clock: Clock) -> None:
    oak.take()
    submit(api, oak.token, 2, requestor="zoe")
    first, *_ = oak.take()
    clock.now += 100
    oak.end(first)
    answer = api.good("GET", f"/v1/clusters/oak/bars?from={clock.now - 3600}&to={clock.now + 1}", None, oak.token)
    assert sorted(answer["kind"]) == [0, 2]
    assert answer["users"] == ["zoe"]
    assert [end - start for start, end in zip(answer["start"], answer["end"], strict=True) if end] == [100]
    assert "zoe" in Browser(api, oak.token).get("/clusters/oak/bars?hours=1")
    later = api.good("GET", f"/v1/clusters/oak/bars?from={clock.now + 50}&to={clock.now + 90}", None, oak.token)
    assert later["kind"] == [2]


def test_an_agent_that_closed_its_connection_is_named_until_it_is_heard_of(api: Api, oak: Cluster) -> None:
    service, now = api.service, [1000.0]
    heartbeats, entry = service.heartbeats, service.catalogue["oak"]
    heartbeats._monotonic = lambda: now[0]
    oak.say("heartbeat")

    def named() -> list[str]:
        return [one["why"] for one in api.good("GET", "/v1/summary", None, oak.token)["first"]]

    def leave(number: int) -> list[str]:
        heartbeats.end_wait(entry.id, "a", number)
        now[0] += 12
        return named()

    now[0] += 10  # of a wait
    number = heartbeats.begin_wait(entry.id, "a")
    heartbeats.end_wait(entry.id, "a", number)
    assert named() == []  # it may come again at once
    answers = ["agent a closed the connection 12 s ago; the workers are lost in 38 s unless it comes back"]
    assert leave(number) == answers
    oak.say("heartbeat")
    assert named() == []
    first, second = (heartbeats.begin_wait(entry.id, "a") for _ in range(2))
    assert leave(first) == []  # an old connection: it waits on another
    assert len(leave(second)) == 1
    now[0] += 61
    assert named() == []  # the lease is over: it counts as lost by that
    assert not heartbeats._left
    oak.say("heartbeat")
    number = heartbeats.begin_wait(entry.id, "a")
    oak.say("heartbeat", workers=[])
    assert all("connection" not in one for one in leave(number))  # it had signed off


def test_every_command_that_a_page_names_can_be_typed() -> None:
    """Its name, its options and the number of its arguments are those of the command line."""
    named = set[tuple[str, str]]()
    for file in (ROOT / "rainbow" / "page" / "templates").glob("*.html"):
        text = re.sub(r"{%.*?%}", "", re.sub(r"{{ ([a-z.]+).*?}}", r"\1", file.read_text()))
        named |= set(re.findall(r"<code>rainbow ([^<]+)</code>|'rainbow ([^']+)'", text))
    for words in sorted(one or other for one, other in named):
        command, rest = main, words.replace("verb", "drain").split()
        while isinstance(command, click.Group) and rest and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        assert not isinstance(command, click.Group) or command.invoke_without_command, words
        context = click.Context(command)
        assert command.make_parser(context).parse_args(rest)[1] == [], words


# ── live ──


def test_the_stream_names_clusters_that_changed_and_ends_with_the_session(api: Api, oak: Cluster) -> None:
    browser = Browser(api, oak.token)
    stream = browser.client.get(f"/ui/events?seen={stamp_of(browser)}").response
    assert next(stream) == b"retry: 3000\n\n"
    parts: list[bytes] = []
    listening = threading.Thread(target=lambda: parts.append(next(stream)))
    listening.start()
    while not api.service.news._listeners:
        time.sleep(0.01)
    submit(api, oak.token)
    listening.join(10)
    assert parts == [b'event: changed\ndata: ["oak"]\n\n']
    sessions.end(api.service, browser.cookie)
    assert next(stream).startswith(b"event: end")


def test_the_stream_names_what_changed_while_it_was_opened(api: Api, oak: Cluster) -> None:
    browser = Browser(api, oak.token)
    seen = stamp_of(browser)
    stream = browser.client.get(f"/ui/events?seen={seen}").response
    assert next(stream) == b"retry: 3000\n\n"
    submit(api, oak.token)
    assert next(stream) == b'event: changed\ndata: ["oak"]\n\n'
    late = browser.client.get(f"/ui/events?seen={seen}").response
    assert next(late) == b'retry: 3000\n\nevent: changed\ndata: ["*"]\n\n'


def stamp_of(browser: Browser) -> str:
    [stamp] = re.findall('data-news="(.+?)"', browser.get("/clusters/oak"))
    return str(stamp)


def test_streams_of_the_page_take_no_place_of_an_agent_and_are_few(api: Api, oak: Cluster) -> None:
    browser = Browser(api, oak.token)
    held = [browser.client.get("/ui/events") for _ in range(9)]
    assert [answer.status_code for answer in held] == [200] * 8 + [429]
    assert api.call("GET", "/v1/events", None, oak.token).status_code == 200
    for answer in held:
        answer.close()
