"""Signing in to the page, sessions, and forms: who may do what, and nobody else."""

from __future__ import annotations

import re
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from rainbow.errors import Unauthenticated
from rainbow.page.frame import SAFE
from rainbow.service.core import sessions
from rainbow.text import rfc3339
from tests.conftest import ADMIN, Api, Clock, Cluster, examples, open_service_at
from tests.support.page_client import Browser, read, submit

# ── sessions ──


def test_who_is_not_signed_in_is_sent_to_the_login_and_back(api: Api, oak: Cluster) -> None:
    browser = Browser(api)
    answer = browser.client.get("/jobs?state=WAITING")
    assert answer.headers["Location"] == "/login?next=%2Fjobs%3Fstate%3DWAITING"
    assert browser.sign_in(oak.token, to="/jobs?state=WAITING").headers["Location"] == "/jobs?state=WAITING"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert Browser(api).sign_in(oak.token, to=elsewhere).headers["Location"] == "/fleet"


def test_cookie_is_for_this_host_alone_and_no_script(api: Api) -> None:
    answer = Browser(api).sign_in(ADMIN).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(answer.split("; "))
    secure = api.app.test_client().post("/login", data={"tokens": ADMIN}, base_url="https://rainbow.example")
    answer = secure.headers["Set-Cookie"]
    assert answer.startswith("__Host-rainbow=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Secure"} <= set(answer.split("; "))
    assert "Domain" not in answer


def test_a_stranger_by_plain_http_cannot_sign_in(api: Api) -> None:
    there = {"REMOTE_ADDR": "192.0.2.7"}
    assert api.app.test_client().post("/login", data={"tokens": ADMIN}, environ_base=there).status_code == 403
    assert "ssh -L" in api.app.test_client().get("/login", environ_base=there).get_data(as_text=True)


def test_unknown_tokens_open_nothing_and_are_limited(api: Api, clock: Clock) -> None:
    browser = Browser(api)
    assert [browser.sign_in("rbt_unknown").status_code for _ in range(11)] == [401] * 10 + [429]
    assert not browser.cookie
    clock.now += 61
    assert browser.sign_in("rbt_unknown", ADMIN).status_code == 303


def test_a_login_begins_a_new_session_and_ends_the_one_before(api: Api) -> None:
    browser = Browser(api)
    browser.client.set_cookie("rainbow", "chosen-by-somebody-else")
    browser.sign_in(ADMIN)
    first = browser.cookie
    assert first != "chosen-by-somebody-else"
    browser.sign_in(ADMIN)
    assert browser.cookie != first
    browser.client.set_cookie("rainbow", first)
    browser.get("/fleet", 303)


def test_store_keeps_neither_cookie_nor_token(api: Api, oak: Cluster) -> None:
    browser = Browser(api, oak.token)
    with api.service.store.read() as connection:
        stored = str(connection.execute(sa.text("SELECT * FROM sessions")).all())
    assert browser.cookie not in stored
    assert oak.token not in stored


def test_logout_ends_the_session_for_every_copy_of_its_cookie(api: Api) -> None:
    browser = Browser(api, ADMIN)
    cookie = browser.cookie
    assert browser.post("/logout").headers["Location"] == "/login"
    browser.client.set_cookie("rainbow", cookie)
    browser.get("/fleet", 303)


@pytest.mark.parametrize(("pause", "status"), [(sessions.IDLE - 1, 200), (sessions.IDLE + 61, 303)])
def test_a_session_ends_when_it_is_not_used(api: Api, clock: Clock, pause: float, status: int) -> None:
    browser = Browser(api, ADMIN)
    clock.now += pause
    browser.get("/fleet", status)


def test_a_session_ends_after_eight_hours_of_use(api: Api, clock: Clock) -> None:
    browser = Browser(api, ADMIN)
    for _ in range(16):
        browser.get("/fleet")
        clock.now += sessions.LONGEST / 16
    clock.now += 1
    browser.get("/fleet", 303)


def test_a_revoked_token_ends_in_every_session_at_once(api: Api, oak: Cluster) -> None:
    elm = api.register("elm")
    minted = api.good("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret)
    both, one = Browser(api, minted["token"], elm.token), Browser(api, minted["token"])
    assert "/clusters/oak" in both.get("/fleet")
    api.good("DELETE", f"/v1/tokens/{minted['id']}", None, oak.secret)
    assert "/clusters/oak" not in both.get("/fleet")
    assert "/clusters/elm" in both.get("/fleet")
    one.get("/fleet", 303)


def seen(api: Api, cookie: str) -> Any:
    result = sessions.find(api.service, cookie)
    return result and (result.acts, sorted(result.caller.visible or ()), result.caller.confined)


DEEDS = ["find", "revoke", "rotate", "delete", "own", "all", "wait", "act", "logout"]


@hypothesis.settings(max_examples=examples(32))
@given(st.lists(st.sampled_from(DEEDS), max_size=12))
def test_what_is_remembered_of_sessions_is_what_the_store_says(steps: list[str]) -> None:
    """Plain specification: a session that is read anew each time."""
    with tempfile.TemporaryDirectory() as folder, closing(open_service_at(Path(folder), clock := Clock())) as service:
        api = Api(service)
        there = {name: api.register(name) for name in ("oak", "elm")}
        minted = [
            api.good("POST", "/v1/tokens", {"clusters": [name], "requestors": ["ann"], **more}, there[name].secret)
            for name in ("oak", "elm")
            for more in ({}, {"expires_at": rfc3339(clock.now + 40)})
        ]
        held = [one["token"] for one in minted]
        cookies = [sessions.begin(service, some).cookie for some in (held, held[:1], held[1:2], [ADMIN])]
        before = [seen(api, cookie) for cookie in cookies]
        assert [len(answers[1]) for answers in before] == [2, 1, 1, 0]
        for number, step in enumerate(steps):
            one = minted[number % 4]
            name = one["clusters"][0]
            owner = there[name].secret
            if step == "revoke":
                api.call("DELETE", f"/v1/tokens/{one['id']}", None, owner)
            elif step == "rotate":
                api.call("POST", f"/v1/tokens/{one['id']}:rotate", None, owner)
            elif step == "delete":
                api.call("DELETE", f"/v1/clusters/{name}", None, owner)
            elif step in ("own", "all"):
                api.call("PATCH", f"/v1/clusters/{name}/scheduler", {"visibility": step}, owner)
            elif step == "wait":
                clock.now += 9.0
            elif step == "logout":
                sessions.end(service, cookies[number % 4])
            elif step == "act" and (result := sessions.find(service, cookies[0])):
                with suppress(Unauthenticated):
                    cookies[0] = sessions.act(service, result, held[0]).cookie
            answers = [seen(api, cookie) for cookie in cookies]
            service.state(sessions.Remembered).clear()
            assert answers == [seen(api, cookie) for cookie in cookies], steps[: number + 1]


@pytest.mark.remembers
def test_a_session_that_was_just_asked_for_is_not_read_again(api: Api, clock: Clock) -> None:
    browser, statements = Browser(api, ADMIN), list[str]()
    sessions.find(api.service, browser.cookie)
    sa.event.listen(api.service.store.engine, "before_cursor_execute", lambda *answer: statements.append(answer[2]))
    sessions.find(api.service, browser.cookie)
    assert bool(statements) == api.service.store.many_processes
    clock.now += sessions.FOR
    sessions.find(api.service, browser.cookie)
    assert statements


def test_a_cookie_opens_nothing_under_v1(api: Api) -> None:
    browser = Browser(api, ADMIN, acts=True)
    assert browser.client.get("/v1/clusters").status_code == 401


# ── forms ──


def unsafe(api: Api) -> list[tuple[str, str]]:
    """Every route of the page that is not only read."""
    return [
        (method, re.sub(r"<any\((\w+)[^>]*>", r"\1", re.sub(r"<(?:id:|path:)?(\w+)>", r"\1", rule.rule)))
        for rule in api.app.url_map.iter_rules()
        if rule.endpoint.startswith("page.")
        for method in sorted((rule.methods or set()) - {*SAFE, "OPTIONS"})
    ]


OPEN = {"/login"}  # before there is a session
LOOKING = {
    "/logout",
    "/ui/act",
    "/match",
    "/try",
}  # change nothing but the session: they need its form, not leave to act


def test_sessions_that_look_only_are_refused_by_every_unsafe_route(api: Api) -> None:
    browser = Browser(api, ADMIN)
    routes = unsafe(api)
    assert {path for _, path in routes} >= OPEN | (LOOKING & {path for _, path in routes})
    for method, path in routes:
        if path not in OPEN | LOOKING:
            answer = browser.client.open(path, method=method, data={"form": browser.token()})
            assert answer.status_code == 403, path
            assert "this session is read-only" in answer.get_data(as_text=True), path


@pytest.mark.parametrize("brought", ["", "00.00", "of another session"])
def test_forms_of_no_session_or_another_are_refused_by_every_route(api: Api, brought: str) -> None:
    browser = Browser(api, ADMIN, acts=True)
    form = Browser(api, ADMIN, acts=True).token() if brought.startswith("of") else brought
    for method, path in unsafe(api):
        if path not in OPEN:
            answer = browser.client.open(path, method=method, data={"form": form})
            assert answer.status_code == 403, path
            assert "not from a page of your session" in answer.get_data(as_text=True), path


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
def test_forms_that_other_sites_send_are_refused_by_every_route(api: Api, headers: dict[str, str]) -> None:
    browser = Browser(api, ADMIN, acts=True)
    for method, path in unsafe(api):
        data = {"form": browser.token(), "tokens": ADMIN}
        assert browser.client.open(path, method=method, data=data, headers=headers).status_code == 403, path


def test_leave_to_act_takes_a_token_of_the_session_and_ends_after_an_hour(
    api: Api, oak: Cluster, clock: Clock
) -> None:
    browser = Browser(api, oak.token)
    [job] = submit(api, oak.token)
    assert browser.post("/ui/act", token=ADMIN).status_code == 401
    before = browser.cookie
    assert browser.post("/ui/act", token=oak.token, next="/jobs").headers["Location"] == "/jobs"
    assert browser.cookie != before
    assert browser.post(f"/ui/jobs/{job}/suspend").status_code == 303
    assert browser.post(f"/ui/jobs/{job}/resume").status_code == 303
    clock.now += sessions.ACTING + 1
    browser.sign_in(oak.token)
    assert browser.post(f"/ui/jobs/{job}/cancel").status_code == 403


def test_all_jobs_that_a_filter_chooses_are_changed_after_a_preview(api: Api, oak: Cluster, clock: Clock) -> None:
    ids = submit(api, oak.token, 30, name="sweep")
    other = submit(api, oak.token, name="other")[0]
    browser = Browser(api, oak.token, acts=True)

    def post(**fields: str) -> str:
        form = {"form": browser.token(), "all": "yes", **fields}
        text: str = browser.client.post("/ui/jobs", data=form).get_data(as_text=True)
        return text

    preview = post(verb="cancel", name="sw*")
    read(preview)
    assert "Cancel 30 jobs?" in preview
    assert "and 5 more" in preview
    asks = dict(re.findall(r'name="(name|until)" value="([^"]+)"', preview))
    clock.now += 60
    late = submit(api, oak.token, name="sweep")[0]
    assert "30 of 30 jobs" in post(verb="cancel", sure="yes", **asks)
    states = {one: api.good("GET", f"/v1/jobs/{one}", None, oak.token)["state"] for one in (*ids, other, late)}
    assert {one for one, state in states.items() if state == "WAITING"} == {other, late}
    assert "No job matches" in post(verb="cancel", name="nothing*")


def test_a_preview_says_which_jobs_are_not_the_callers_to_change(api: Api, oak: Cluster) -> None:
    token = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["ann"]}, oak.secret)["token"]
    submit(api, oak.token, name="hers", requestor="ann")
    submit(api, oak.token, name="his", requestor="bob")
    browser = Browser(api, token, acts=True)
    form = {"form": browser.token(), "all": "yes", "verb": "hold"}
    text = browser.client.post("/ui/jobs", data=form).get_data(as_text=True)
    assert "Hold 1 job?" in text
    assert "1 cannot be changed" in text


def test_many_jobs_are_canceled_after_their_number_was_shown(api: Api, oak: Cluster) -> None:
    ids = submit(api, oak.token, 3)
    browser = Browser(api, oak.token, acts=True)
    request = browser.client.post("/ui/jobs", data={"form": browser.token(), "verb": "cancel", "job": ids}).get_data(
        as_text=True
    )
    assert "Cancel 3 jobs?" in request
    assert api.good("GET", f"/v1/jobs/{ids[0]}", None, oak.token)["state"] == "WAITING"
    sure = {"form": browser.token(), "verb": "cancel", "job": [*ids, "0123"], "sure": "yes"}
    answer = browser.client.post("/ui/jobs", data=sure).get_data(as_text=True)
    assert "3 of 4 jobs" in answer
    assert "not found" in answer
    assert api.good("GET", f"/v1/jobs/{ids[0]}", None, oak.token)["state"] == "CANCELED"
