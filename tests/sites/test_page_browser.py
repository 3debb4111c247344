"""The page in a real Chromium: journeys, axe-core, keyboard, phone, dark, print, and no JavaScript."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from tests.conftest import jobspec
from tests.support.services import package, require

chromium = package("tests.support.chromium")
ROOT = Path(__file__).parents[2]
PATHS = (
    *("/fleet", "/accounts", "/jobs?requestor=user07", "/jobs?state=WAITING&sort=oldest"),
    *("/clusters", "/match", "/try"),
    *("/jobs/{late}", "/jobs/{done}", "/jobs/{hostile}", "/jobs/none", "/clusters/oak?worker=n0"),
    *("/clusters/oak?tab=timeline", "/clusters/oak?tab=queue", "/clusters/oak?tab=shares"),
    *("/clusters/oak?tab=plan", "/clusters/oak?tab=settings", "/clusters/oak/drain?workers=n0"),
)
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require("Chromium")
    with chromium.look(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_complained_of(look: Any) -> Iterator[None]:
    look.faults.clear()
    yield
    assert [fault for fault in look.faults if "status of" not in fault] == []


def until(result: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (value := result()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return value


def paths(look: Any) -> list[str]:
    return [path.format(**look.site.jobs) for path in PATHS]


# ── every page, in every light ──


HOW: dict[str, tuple[dict[str, Any], list[str]]] = {  # how it is looked at, and the rules that may say something else
    "light": ({"color_scheme": "light"}, []),
    "dark": ({"color_scheme": "dark"}, ["color-contrast"]),
    "phone": (
        {"color_scheme": "light"},
        ["color-contrast", "target-size", "scrollable-region-focusable", "empty-table-header"],
    ),
}


def test_axe_finds_nothing_in_light_in_dark_and_on_a_phone_and_no_page_moves_sideways(look: Any) -> None:
    results = []
    with look.page() as page:
        for path in paths(look):
            page.goto(path)
            axe = chromium.Axe(page)
            for how, (media, rules) in HOW.items():
                page.emulate_media(**media)
                page.set_viewport_size(PHONE if how == "phone" else DESK)
                results += [f"{path} {how}: {one}" for one in axe.violations(rules)]
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                results += [f"{path} {how}: {wide} px too wide"] if wide > 0 else []
    assert results == []


def test_axe_finds_faults_that_are_planted(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        page.evaluate("document.querySelector('main').append(document.createElement('img'))")
        assert any("image-alt" in one for one in chromium.Axe(page).violations())


def test_every_page_is_whole_without_javascript_and_in_print(look: Any) -> None:
    with look.page(java_script_enabled=False) as page:
        for path in paths(look):
            page.goto(path)
            assert page.locator("h1").inner_text()
        page.goto("/fleet")
        page.emulate_media(media="print")
        assert page.locator("h1").is_visible()
        assert not page.locator("header nav").is_visible()


# ── journeys ──


def test_newcomer_finds_why_a_jobspec_fits_nowhere(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        page.click("nav >> text=Match")
        page.fill("#jobspec", (ROOT / "jobspecs" / "impossible-version.yaml").read_text())
        page.click("main button >> nth=0")
        assert "0 of 3 clusters match" in page.inner_text("main")
        assert "the cluster has no subsystem spack" in page.inner_text("main")
        assert "Would match without" in page.inner_text("main")


def test_operator_finds_the_oldest_wait_and_its_reason_in_two_clicks(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        page.click("dt:has-text('longest wait') + dd a")
        page.click("tbody th a >> nth=0")
        assert "Waits" in page.inner_text("#head")


def test_operator_drains_a_node_after_a_preview(look: Any) -> None:
    with look.page() as page:
        page.goto("/clusters/elm?worker=n1")
        page.click("text=Drain…")
        assert "workers that remain ready" in page.inner_text("main")
        page.click("main form button")
        until(lambda: "1 draining" in page.inner_text("#map"))
        page.goto("/clusters/elm?worker=n1")
        page.click("text=Reinstate…")
        page.click("main form button")


def test_operator_sees_a_worker_that_goes_away_without_a_reload(look: Any) -> None:
    with look.page() as page:
        page.goto("/clusters/elm")
        until(lambda: page.inner_text("#live") == "live")
        with Client(look.site.url, look.site.clusters["elm"]["secret"]) as client:
            client.move_worker("elm", "n1", "offline")
            until(lambda: "1 away" in page.inner_text("#map"))
            client.move_worker("elm", "n1", "reinstate")
        until(lambda: "away" not in page.inner_text("#kind-0"))


NEWS = "new BroadcastChannel('rainbow').postMessage({names: ['*'], text: 'live', on: true})"


def test_viewer_whom_a_busy_server_asks_to_wait_waits_though_there_is_news(look: Any) -> None:
    requests: list[float] = []

    def busy(route: Any) -> None:
        requests.append(time.monotonic())
        route.fulfill(status=204, headers={"Retry-After": "5"})

    with look.page() as page:
        page.goto("/fleet")
        until(lambda: page.inner_text("#live") == "live")
        page.route(lambda url: url.endswith("/fleet"), busy)
        while len(requests) < 2:
            page.evaluate(NEWS)
            page.wait_for_timeout(200)
        assert requests[1] - requests[0] > 4.5


def test_researcher_reads_a_job_and_its_output_as_plain_text(look: Any) -> None:
    with look.page() as page:
        page.goto(f"/jobs/{look.site.jobs['done']}")
        assert page.inner_text("#output pre").strip() == "red <b>bold</b>"
        page.goto(f"/jobs/{look.site.jobs['hostile']}")
        assert "<img src=x onerror=alert(1)>⟨U+202E⟩txt" in page.inner_text("h1")


def test_researcher_follows_what_a_running_job_prints(look: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo begun; until [ -e {go} ]; do sleep 0.1; done; echo more; sleep 60"
    with Client(look.site.url, look.site.clusters["elm"]["token"]) as client, look.page() as page:
        job = client.submit(jobspec(1, ["sh", "-c", script], duration=600), name="follows")["id"]
        page.goto(f"/jobs/{job}")
        until(lambda: "begun" in page.inner_text("#output"))
        go.touch()
        until(lambda: "more" in page.inner_text("#output"))
        assert "RUNNING" in page.inner_text("#head")
        client.cancel(job)


def test_operator_compares_priorities_on_the_last_500_decisions(look: Any) -> None:
    with look.page() as page:
        page.goto("/try")
        page.fill("#config", "scheduler: {algorithms: {selection: {name: random}}}")
        page.click("text=Compare")
        answer = page.inner_text("main")
        assert "500 decided again" in answer or "the 2 s for a comparison ended" in answer


def test_operator_looks_at_a_timeline_of_10_000_bars(look: Any) -> None:
    with look.page() as page:
        page.goto("/clusters/elm?tab=timeline&hours=24")
        canvas = page.locator("#timeline canvas")
        canvas.wait_for()
        bars = page.evaluate(
            "fetch('/clusters/elm/bars?hours=24').then(told => told.json()).then(told => told.start.length)"
        )
        assert bars == chromium.BARS
        assert "The last 50 to start" in page.inner_text("main")
        canvas.focus()
        page.keyboard.press("ArrowDown")
        assert page.inner_text("#tip").startswith("many · ")


def test_tasks_that_share_a_worker_lie_one_below_the_other(look: Any) -> None:
    at = time.time()
    shared = {
        "lanes": ["n0", "n1"],
        "users": ["ann", "bo"],
        "jobs": [["1", "first"], ["2", "second"], ["3", "third"]],
    }
    bars = {"job": [0, 1, 2], "lane": [0, 0, 1], "user": [0, 1, 0], "start": [at - 90, at - 60, at - 90]}
    answer = {**shared, **bars, "end": [None, None, None], "kind": [2, 2, 2], "at": at, "planned": [], "more": 0}
    with look.page() as page:
        page.route("**/bars?*", lambda route: route.fulfill(json=answer))
        page.goto("/clusters/elm?tab=timeline&hours=1")
        canvas = page.locator("#timeline canvas")
        canvas.wait_for()
        box = canvas.bounding_box()
        x = box["x"] + box["width"] * (3600 - 30) / (3600 + 900)
        results = []
        for y in range(20, int(box["height"])):
            page.mouse.move(x, box["y"] + y)
            results.append(page.inner_text("#tip").partition(" ")[0])
        assert list(dict.fromkeys(filter(None, results))) == ["first", "second", "third"]
        assert results.count("third") == 2 * results.count("first") == 2 * results.count("second")


def test_user_signs_in_with_two_tokens_and_out(look: Any) -> None:
    with look.page(signed=False) as page:
        two = [look.site.clusters[name]["token"] for name in ("oak", "elm")]
        chromium.sign_in(page, look.site.url, *two, acts=False)
        assert page.locator(".tiles a").count() == 2
        assert "read-only" in page.inner_text("header")
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"
        page.click("#who summary")
        page.click("text=Sign out")
        page.goto("/jobs")
        assert "/login" in page.url


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until this has the focus."""
    requirement = page.locator(selector).first
    for _ in range(60):
        if requirement.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by Tab")


def enter(page: Any, selector: str) -> None:
    tab_to(page, selector)
    page.keyboard.press("Enter")


def written(page: Any, selector: str, text: str) -> None:
    tab_to(page, selector)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def go(page: Any, key: str, path: str) -> None:
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press(key)
    page.wait_for_url(f"**{path}")


def test_keys_alone_do_every_journey(look: Any) -> None:
    with look.page(signed=False) as page:
        page.goto("/login")
        written(page, "#tokens", "\n".join([look.site.admin, look.site.clusters["elm"]["secret"]]))
        tab_to(page, "input[name=acts]")
        page.keyboard.press("Space")
        enter(page, "main button")
        page.wait_for_url("**/fleet")
        enter(page, "dt:has-text('longest wait') + dd a")  # the oldest wait and its reason
        page.wait_for_url("**/jobs?*")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/*")
        assert "Waits" in page.inner_text("#head")
        go(page, "m", "/match")  # why a jobspec fits nowhere
        written(page, "#jobspec", (ROOT / "jobspecs" / "impossible-version.yaml").read_text())
        enter(page, "main button")
        page.wait_for_selector("#found")
        assert "Would match without" in page.inner_text("main")
        go(page, "t", "/try")  # other priorities
        written(page, "#config", "scheduler: {algorithms: {selection: {name: random}}}")
        enter(page, "main button")
        page.wait_for_selector("#found")
        go(page, "c", "/clusters")  # a node, its drain after a preview, and back
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/clusters/elm")
        tab_to(page, "#map canvas")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#tip").startswith("n1: ")
        page.keyboard.press("Enter")
        page.wait_for_url("**worker=n1")
        for verb, after in (("Drain…", "DRAINING"), ("Reinstate…", "READY")):
            enter(page, f"a:has-text('{verb}')")
            page.wait_for_url("**/drain?*")
            enter(page, "main form button")
            page.wait_for_url("**/clusters/elm")
            page.goto("/clusters/elm?worker=n1")
            assert after in page.inner_text("#worker")
        enter(page, "a:has-text('Timeline')")
        tab_to(page, "#timeline canvas")
        page.keyboard.press("+")
        page.keyboard.press("ArrowDown")
        assert page.inner_text("#tip")
        page.goto(f"/jobs/{look.site.jobs['done']}")  # its output scrolls by keys
        tab_to(page, "#output pre")
        page.keyboard.press("?")
        assert page.locator("dialog.keys").is_visible()
        page.keyboard.press("Escape")
        enter(page, "#who summary")
        enter(page, "button:has-text('Sign out')")
        page.wait_for_url("**/login*")


@pytest.mark.parametrize("seconds", [60.0, pytest.param(15.0, marks=pytest.mark.soak)])
def test_operator_sees_a_lost_agent_within(look: Any, seconds: float) -> None:
    """15 s are promised; what else the machine does beside the suite takes its share."""
    with look.page() as page:
        page.goto("/fleet")
        until(lambda: page.inner_text("#live") == "live")
        time.sleep(2)  # the agent waits again for work
        look.site.agents["elm"].kill()
        until(lambda: "closed the connection" in page.inner_text("#first"), seconds)


COUNT = "window.drawn = 0; document.addEventListener('rainbow-changed', () => { window.drawn += 1; })"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_minutes_of_live_pages_keep_the_heap_flat(look: Any) -> None:
    """What is left after garbage was collected: a leak of one section for each of 300 changes would show."""

    def left(page: Any) -> tuple[float, int]:
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        nodes, heap = session.send("Memory.getDOMCounters")["nodes"], session.send("Runtime.getHeapUsage")["usedSize"]
        session.detach()
        return heap / 1e6, nodes

    token = look.site.clusters["oak"]["token"]
    with Client(look.site.url, token) as client, look.page() as jobs, look.page() as fleet:
        jobs.goto("/jobs")
        fleet.goto("/fleet")
        for page in (jobs, fleet):
            page.evaluate(COUNT)
        seen, end = [], time.monotonic() + 600
        while time.monotonic() < end:
            made = client.submit(jobspec(4, ["true"], duration=60), name="live")["id"]
            time.sleep(2)
            client.cancel(made)
            if int((end - time.monotonic()) / 60) < 9 - len(seen):
                seen.append([left(page) for page in (jobs, fleet)])
                print(seen[-1], flush=True)
        assert all(page.evaluate("window.drawn") > 100 for page in (jobs, fleet))
        until(lambda: made in jobs.inner_html("#main"), 15)
        for first, last in zip(seen[0], seen[-1], strict=True):
            assert last[0] < first[0] * 1.2 + 0.5, seen
            assert last[1] < first[1] * 1.2 + 200, seen


def test_an_injected_script_or_markup_is_refused(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        answer = page.evaluate("try { document.body.innerHTML = '<b>x'; 'written' } catch (fault) { fault.name }")
        assert answer == "TypeError"
        look.faults.clear()  # the browser reports it, as it should
