"""The page without a browser: HTML, headers, sessions, forms, hostile fields, and figures equal to the API's."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import sqlalchemy as sa

from rainbow.page.frame import HEADERS, SAFE
from rainbow.page.views.clusters import TABS
from rainbow.page.words import clean
from rainbow.service.core import sessions
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec

VOID = {"meta", "link", "input", "br", "img", "hr"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}${7*7}",
    "\u202etxt.exe\u2066",
    "\x1b[31mred\x1b]0;title\x07",
    "a" * 100,
]


class Read(HTMLParser):
    """A page as it is read: tags balanced, addresses, and whatever stands inline."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.forms: list[dict[str, Any]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.faults += [f"{tag} {key}" for key in given if key.startswith("on") or key == "style"]
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.faults.append(f"inline {tag}")
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.links += [str(given[key]) for key in ("href", "src") if given.get(key)]
        if tag == "form":
            self.forms.append({"action": given.get("action"), "method": given.get("method"), "fields": {}})
        if tag == "input" and given.get("name") and self.forms:
            self.forms[-1]["fields"][given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


class Browser:
    """A browser without JavaScript that keeps its cookies."""

    def __init__(self, api: Api, *tokens: str, acts: bool = False) -> None:
        self.api = api
        self.client = api.app.test_client()
        if tokens:
            self.sign_in(*tokens, acts=acts)

    def sign_in(self, *tokens: str, acts: bool = False, to: str = "") -> Any:
        return self.client.post(
            "/login", data={"tokens": "\n".join(tokens), "next": to, **({"acts": "on"} if acts else {})}
        )

    @property
    def cookie(self) -> str:
        found = self.client.get_cookie("rainbow")
        return found.value if found else ""

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        text: str = answer.get_data(as_text=True)
        assert answer.status_code == status, text
        return text

    def token(self) -> str:
        return re.search(r'name="form" value="([0-9a-f.]+)"', self.get("/fleet"))[1]  # type: ignore[index]

    def post(self, path: str, **fields: Any) -> Any:
        return self.client.post(path, data={"form": self.token(), **fields})


def read(text: str) -> Read:
    found = Read(text)
    assert not found.faults, found.faults
    assert not found.open, found.open
    assert len(set(found.ids)) == len(found.ids)
    return found


def submit(api: Api, token: str, count: int = 1, **more: Any) -> list[str]:
    body = {"jobspec": jobspec(), **more}
    return [api.good("POST", "/v1/jobs", body, token)["id"] for _ in range(count)]


def every_page(api: Api, cluster: str = "oak", job: str = "") -> list[str]:
    """The address of every page that is read, of this cluster and job."""
    found = []
    for rule in api.app.url_map.iter_rules():
        if (
            rule.endpoint.startswith("page.")
            and "GET" in (rule.methods or ())
            and not rule.rule.startswith("/static")
        ):
            path = rule.rule.replace("<id:job_id>", job or "0000").replace("<name>", cluster)
            found += [f"{path}?tab={tab}" for tab in TABS] if rule.endpoint == "page.cluster" else [path]
    return sorted(set(found) - {"/ui/events"})


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


# ── sessions ──


def test_who_is_not_signed_in_is_sent_to_the_login_and_back(api: Api, oak: Cluster) -> None:
    browser = Browser(api)
    answer = browser.client.get("/jobs?state=WAITING")
    assert answer.headers["Location"] == "/login?next=%2Fjobs%3Fstate%3DWAITING"
    assert browser.sign_in(oak.token, to="/jobs?state=WAITING").headers["Location"] == "/jobs?state=WAITING"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert Browser(api).sign_in(oak.token, to=elsewhere).headers["Location"] == "/fleet"


def test_cookie_is_for_this_host_alone_and_no_script(api: Api) -> None:
    told = Browser(api).sign_in(ADMIN).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(told.split("; "))
    secure = api.app.test_client().post("/login", data={"tokens": ADMIN}, base_url="https://rainbow.example")
    told = secure.headers["Set-Cookie"]
    assert told.startswith("__Host-rainbow=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Secure"} <= set(told.split("; "))
    assert "Domain" not in told


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
        kept = str(connection.execute(sa.text("SELECT * FROM sessions")).all())
    assert browser.cookie not in kept
    assert oak.token not in kept


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
            assert "looks only" in answer.get_data(as_text=True), path


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


def test_many_jobs_are_canceled_after_their_number_was_shown(api: Api, oak: Cluster) -> None:
    ids = submit(api, oak.token, 3)
    browser = Browser(api, oak.token, acts=True)
    asked = browser.client.post("/ui/jobs", data={"form": browser.token(), "verb": "cancel", "job": ids}).get_data(
        as_text=True
    )
    assert "Cancel 3 jobs?" in asked
    assert api.good("GET", f"/v1/jobs/{ids[0]}", None, oak.token)["state"] == "WAITING"
    sure = {"form": browser.token(), "verb": "cancel", "job": [*ids, "0123"], "sure": "yes"}
    told = browser.client.post("/ui/jobs", data=sure).get_data(as_text=True)
    assert "3 of 4 jobs" in told
    assert "not found" in told
    assert api.good("GET", f"/v1/jobs/{ids[0]}", None, oak.token)["state"] == "CANCELED"


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
    told = api.good("GET", "/v1/summary", None, ADMIN)
    text = "".join(read(Browser(api, ADMIN).get("/fleet")).text)
    assert told["jobs"] == {"running": 0, "waiting": 12, "unplaced": 0}
    assert (told["clusters"], told["workers"]["all"]) == (2, 7)
    for figure in (told["clusters"], told["jobs"]["waiting"], told["jobs"]["running"]):
        assert str(figure) in text
    [first] = [one for one in told["first"] if one["name"] == "oak"]
    assert first["oldest_job"]["job"] in Browser(api, ADMIN).get("/fleet")
    assert clean(first["why"]) in text
    counts = api.good("GET", "/v1/jobs:counts?by=state", None, ADMIN)["counts"]
    assert counts["WAITING"] == told["jobs"]["waiting"]


def test_a_job_shows_the_clusters_that_match_and_why_others_do_not(api: Api, oak: Cluster) -> None:
    api.register("elm", grid(1, 1))
    [job] = submit(api, ADMIN)
    text = "".join(read(Browser(api, ADMIN).get(f"/jobs/{job}")).text)
    told = api.good("GET", f"/v1/jobs/{job}/why", None, ADMIN)
    for refusal in told["decision"]["refusals"]:
        assert refusal["text"] in text
    assert told["wait"]["text"] in text
    assert "verify" not in text
    assert "Can it ever run here?" in "".join(read(Browser(api, ADMIN).get(f"/jobs/{job}?verify")).text)


def test_jobs_are_filtered_sorted_and_paged(api: Api, oak: Cluster) -> None:
    ids = submit(api, oak.token, 60)
    browser = Browser(api, oak.token)
    first = browser.get("/jobs?state=WAITING&sort=oldest&cluster=oak")
    rows = re.findall(r'data-key="(\w+)"', first)
    assert rows == ids[:50]
    following = re.search(r'rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")  # type: ignore[index]
    assert re.findall(r'data-key="(\w+)"', browser.get(following)) == ids[50:]
    assert "No job matches" in browser.get("/jobs?state=FAILED")
    assert "unknown job state" in browser.get("/jobs?state=NONE", 400)
    oldest = api.good("GET", "/v1/jobs?sort=oldest&limit=2", None, oak.token)["jobs"]
    assert [job["id"] for job in oldest] == ids[:2]


def test_reads_of_a_page_do_not_grow_with_clusters(api: Api) -> None:
    api.register("oak0", grid(1, 1))
    browser, counted = Browser(api, ADMIN), []
    statements: list[str] = []
    sa.event.listen(api.service.store.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    for more in range(1, 3):
        browser.get("/fleet")
        statements.clear()
        for path in ("/fleet", "/jobs", "/clusters"):
            browser.get(path)
        counted.append(len(statements))
        for k in range(20 * (more == 1)):
            api.register(f"oak{more}{k}", grid(1, 1))
    assert counted[1] <= counted[0] + 4


def test_the_page_can_be_turned_off(api: Api) -> None:
    settings = api.service.settings
    api.service.settings = replace(settings, server=replace(settings.server, page=False))
    client = api.app.test_client()
    assert client.get("/login").status_code == 404
    assert client.get("/", headers={"Accept": "text/html"}).get_json()["service"] == "rainbow"
