"""The page in a real Chromium: journeys, axe-core, keyboard, phone, dark, print, and no JavaScript."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from tests.services import package, require

chromium = package("tests.chromium")
ROOT = Path(__file__).parents[1]
PATHS = (
    *("/fleet", "/jobs", "/jobs?state=WAITING&sort=oldest", "/clusters", "/match", "/try", "/jobs/{late}"),
    *("/jobs/{done}", "/jobs/{hostile}", "/clusters/oak?worker=n0", "/clusters/oak?tab=timeline"),
    *("/clusters/oak?tab=queue", "/clusters/oak?tab=shares", "/clusters/oak?tab=plan"),
    *("/clusters/oak?tab=settings", "/clusters/oak/drain?workers=n0", "/jobs/none"),
)
PHONE = {"width": 390, "height": 844}


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


def until(found: Callable[[], Any], seconds: float = 15) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()):
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
        {"viewport": PHONE},
        ["color-contrast", "target-size", "scrollable-region-focusable", "empty-table-header"],
    ),
}


@pytest.mark.parametrize("how", HOW)
def test_axe_finds_nothing_and_no_page_moves_sideways(look: Any, how: str) -> None:
    found, (given, rules) = [], HOW[how]
    with look.page(**given) as page:
        for path in paths(look):
            page.goto(path)
            found += [f"{path}: {one}" for one in chromium.violations(page, rules)]
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            found += [f"{path}: {wide} px too wide"] if wide > 0 else []
    assert found == []


def test_axe_finds_faults_that_are_planted(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        page.evaluate("document.querySelector('main').append(document.createElement('img'))")
        assert any("image-alt" in one for one in chromium.violations(page))


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
        page.click("text=Where would it run")
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


def test_researcher_reads_a_job_and_its_output_as_plain_text(look: Any) -> None:
    with look.page() as page:
        page.goto(f"/jobs/{look.site.jobs['done']}")
        assert page.inner_text("#output pre").strip() == "red <b>bold</b>"
        page.goto(f"/jobs/{look.site.jobs['hostile']}")
        assert "<img src=x onerror=alert(1)>⟨U+202E⟩txt" in page.inner_text("h1")


def test_operator_compares_priorities(look: Any) -> None:
    with look.page() as page:
        page.goto("/try")
        page.fill("#config", "scheduler: {algorithms: {selection: {name: random}}}")
        page.click("text=Compare")
        assert "4 decided again" in page.inner_text("main")


def test_user_signs_in_with_two_tokens_and_out(look: Any) -> None:
    with look.page(signed=False) as page:
        two = [look.site.clusters[name]["token"] for name in ("oak", "elm")]
        chromium.sign_in(page, look.site.url, *two, acts=False)
        assert page.locator(".tiles a").count() == 2
        assert "look only" in page.inner_text("header")
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"
        page.click("#who summary")
        page.click("text=Sign out")
        page.goto("/jobs")
        assert "/login" in page.url


def test_keys_alone_reach_a_job_and_a_node(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.wait_for_url("**/jobs")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/*")
        page.keyboard.press("?")
        assert page.locator("dialog.keys").is_visible()
        page.keyboard.press("Escape")
        page.goto("/clusters/oak")
        page.locator("#map canvas").focus()
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#tip").startswith("n1: ")
        page.keyboard.press("Enter")
        page.wait_for_url("**worker=n1")


def test_an_injected_script_or_markup_is_refused(look: Any) -> None:
    with look.page() as page:
        page.goto("/fleet")
        told = page.evaluate("try { document.body.innerHTML = '<b>x'; 'written' } catch (fault) { fault.name }")
        assert told == "TypeError"
        look.faults.clear()  # the browser reports it, as it should
