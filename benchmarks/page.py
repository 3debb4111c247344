"""`make page`: the budgets of the web page, measured in Chromium, and its pictures; `python -m benchmarks.page PART`.

First the clusters and jobs of the demo: their pages are drawn into build/page, and two into docs/ for the README.
Then a server with 1,000 clusters, one of 10,000 nodes with 10,000 bars and 100 jobs that wait.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import viewers
from benchmarks.crowd import VIEWERS, Crowd
from benchmarks.served import Served, serving
from rainbow.cli.demo import examples
from rainbow.cli.demo.processes import process, server
from rainbow.client import Client
from rainbow.page.frame import files
from rainbow.service import Service, Settings
from rainbow.service.core import sessions
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, Api, grid, jobspec
from tests.support import past
from tests.support.chromium import FLAGS, sign_in
from tests.support.services import SERVICES

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "page"
CLUSTERS, NODES, BARS, WAITING, ENDED = 1_000, 10_000, 10_000, 100, 187_000
REDRAW = """(() => {
  const canvas = document.querySelector('#map canvas'), key = new KeyboardEvent('keydown', {key: 'ArrowRight'});
  canvas.focus();
  const begun = performance.now();
  for (let k = 0; k < 50; k++) canvas.dispatchEvent(key);
  return (performance.now() - begun) / 50;
})()"""
FRAMES = """(() => {
  window.frames_ = [];
  let last = performance.now();
  const on = now => { window.frames_.push(now - last); last = now; requestAnimationFrame(on); };
  requestAnimationFrame(on);
})()"""
Row = tuple[str, float, float, str]  # what, measured, budget, unit


# ── budgets ──


@contextmanager
def large(folder: Path) -> Iterator[tuple[Served, Crowd]]:
    """Serve a store with all that."""
    url = f"sqlite:///{folder / 'rainbow.db'}"
    service = Service(open_store(url), Settings(secret=REGISTRATION, admin=ADMIN))
    api = Api(service)
    secrets = {f"site{k:04}": api.register(f"site{k:04}", grid(4, 1)).secret for k in range(CLUSTERS - 1)}
    big = api.register("sequoia", grid(NODES, 1))
    ids = [_submit(api, big.token, wide(6_000), 7_200) for _ in range(WAITING + 1)]
    ids += [_submit(api, big.token, jobspec(), 60) for _ in range(2)]
    past.tasks_of(service.store, ids[-1], BARS, service.clock())
    past.jobs_like(service.store, ids[-2], ENDED, service.clock())
    cookies = [sessions.begin(service, [ADMIN]).cookie for _ in range(VIEWERS)]
    decided = _submit(api, ADMIN, jobspec(), 60)
    service.close()
    tabs = [(f"/clusters/sequoia?tab={tab}", "sequoia") for tab in ("nodes", "queue", "timeline", "shares")]
    pages = [("/fleet", ""), ("/jobs", ""), ("/clusters", ""), (f"/jobs/{decided}", ""), ("/fleet", ""), *tabs]
    own = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION, "RAINBOW_ADMIN_TOKEN": ADMIN}
    with serving(url, folder, environment=own) as served:
        crowd = Crowd(served.port, cookies, ADMIN, {**secrets, "sequoia": big.secret}, jobspec(), pages)
        yield served, crowd


def wide(nodes: int) -> dict[str, Any]:
    """Return a jobspec of one task on so many nodes."""
    spec = jobspec()
    [node] = spec["resources"]
    [slot] = node["with"]
    whole = {"type": "node", "count": nodes, "with": slot["with"]}
    return {**spec, "resources": [{**slot, "with": [whole]}]}


def _submit(api: Api, token: str, spec: dict[str, Any], duration: int) -> str:
    spec = {**spec, "attributes": {"system": {"duration": duration}}}
    return str(api.good("POST", "/v1/jobs", {"jobspec": spec}, token)["id"])


def measured(page: Page, url: str, decided: str) -> Iterator[Row]:
    """Measure every row of the budgets that a page of one browser shows."""
    sizes = {name: len(gzip.compress(content)) for name, (_, content) in files().items() if not name.endswith("svg")}
    yield "script and style of all pages", sum(sizes.values()) / 1000, 45, "kB"
    one = sum(sizes.values()) - min(sizes["map.js"], sizes["timeline.js"])
    yield "script and style of one page", one / 1000, 30, "kB"
    yield from _loaded(page, f"{url}/fleet", f"fleet of {CLUSTERS:,}", 20, 60, 400)
    yield from _loaded(page, f"{url}{decided}", "decision of a job", 10, None, 200)
    yield from _loaded(page, f"{url}/clusters/sequoia?tab=queue", f"queue of {WAITING}", 10, None, 200)
    for path in ("/jobs", "/jobs?state=FAILED", "/jobs?state=COMPLETED&requestor=user07", "/clusters"):
        yield from _loaded(page, url + path, f"{path} of {ENDED:,} jobs", 10, None, 200)
    yield f"map of {NODES:,}: ready", _ready(page, f"{url}/clusters/sequoia", "map-ready"), 500, "ms"
    yield f"map of {NODES:,}: another node chosen", page.evaluate(REDRAW), 8, "ms"
    address = f"{url}/clusters/sequoia?tab=timeline&hours=24"
    yield f"timeline of {BARS:,}: ready", _ready(page, address, "timeline-ready"), 700, "ms"
    yield f"timeline of {BARS:,}: moved, p95 of a frame", _frames(page), 40, "ms"


def watched(crowd: Crowd, server: Sequence[int]) -> Iterator[Row]:
    """Measure what a hundred viewers cost."""
    with ThreadPoolExecutor(1) as apart:  # Playwright has a loop of its own in this thread
        answer = apart.submit(asyncio.run, viewers.measured(crowd, server)).result()
    name = f"{VIEWERS} viewers of {CLUSTERS:,} clusters"
    yield f"{name}: processor", answer["cpu"], 10, "% of a core"
    yield f"{name}: fewer submits", answer["submits"], 5, "%"
    yield f"{name}: agents and streams refused", answer["refused"], 0, ""


def _loaded(page: Page, address: str, name: str, size: float, answer: float | None, loaded: float) -> Iterator[Row]:
    page.goto(address)
    times, bodies, servers = [], [], []
    for _ in range(5):
        page.goto(address)
        reported = json.loads(page.evaluate("JSON.stringify(performance.getEntriesByType('navigation')[0])"))
        times.append(reported["domContentLoadedEventEnd"])
        bodies.append(reported["encodedBodySize"] / 1000)
        servers.append(reported["responseStart"] - reported["requestStart"])
    yield f"{name}: gzip", max(bodies), size, "kB"
    if answer is not None:
        yield f"{name}: server", sorted(servers)[2], answer, "ms"
    yield f"{name}: loaded", sorted(times)[2], loaded, "ms"


def _ready(page: Page, address: str, mark: str) -> float:
    """Return the median time until the canvas is drawn, of a server that has read the cluster before."""
    times = []
    for _ in range(4):
        page.goto(address)
        times.append(_mark(page, mark))
    return sorted(times[1:])[1]


def _mark(page: Page, name: str) -> float:
    for _ in range(100):
        if result := page.evaluate(f"performance.getEntriesByName('{name}').map(one => one.startTime)"):
            return float(result[0])
        time.sleep(0.05)
    return float("inf")


def _frames(page: Page) -> float:
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    page.evaluate(FRAMES)
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    page.mouse.down()
    for k in range(60):
        page.mouse.move(box["x"] + 600 - 6 * k, box["y"] + 60)
    page.mouse.up()
    frames = sorted(page.evaluate("window.frames_"))
    return float(frames[int(len(frames) * 0.95)])


# ── pictures ──

VIEWS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


@contextmanager
def demo(folder: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Run the demo's clusters and jobs, with some that run and wait; yields URL, admin token and pages."""
    with server(folder) as there, ExitStack() as running:
        tokens = []
        for one in examples.clusters():
            with Client(there.url, there.secret) as client:
                made = client.register_cluster(one.name, one.graph, one.subsystems, one.state)
            tokens.append(made["token"])
            words = ["agent", "--cluster", one.name, "--executor", "local", "--url", there.url]
            running.enter_context(process(words, folder / f"{one.name}.log", {"RAINBOW_SECRET": made["secret"]}))
        with Client(there.url, tokens) as client:
            results = dict(_submitted(client))
        time.sleep(12)
        admin = (folder / "rainbow-admin.secret").read_text().strip()
        pages = {"decision": f"/jobs/{results['costs']}", "waiting": f"/jobs/{results['train-5']}"}
        pages |= {"fleet": "/fleet", "jobs": "/jobs", "nodes": "/clusters/willow", "match": "/match"}
        yield (
            there.url,
            admin,
            pages | {"timeline": "/clusters/willow?tab=timeline", "queue": "/clusters/willow?tab=queue"},
        )


def _submitted(client: Client) -> Iterator[tuple[str, str]]:
    for file, text in examples.jobspecs().items():
        try:
            made = client.submit(
                text, name=file.removesuffix(".yaml"), selector=examples.SELECTORS.get(file), requestor="ada"
            )
        except Exception as fault:  # some are there to fit nowhere
            print(f"{file}: {str(fault)[:80]}")
            continue
        yield file.removesuffix(".yaml"), str(made["id"])
    for k in range(6):
        spec = jobspec(2, ["sleep", "900"], duration=1200)
        spec["resources"][0]["with"][0]["with"][0]["count"] = 8
        made = client.submit(spec, name=f"train-{k}", clusters=["willow"], requestor=("ada", "bo", "cy")[k % 3])
        yield f"train-{k}", str(made["id"])


def draw(browser: Browser, url: str, admin: str, pages: dict[str, str]) -> None:
    """Draw every page in every view."""
    OUT.mkdir(parents=True, exist_ok=True)
    for view, options in VIEWS.items():
        context = browser.new_context(base_url=url, **options)
        page = context.new_page()
        sign_in(page, url, admin, acts=False)
        for name, path in pages.items():
            page.goto(path)
            page.wait_for_timeout(500)
            page.screenshot(path=OUT / f"{name}-{view}.png", full_page=True)
            if view == "light":
                page.emulate_media(media="print")
                page.screenshot(path=OUT / f"{name}-print.png", full_page=True)
                page.emulate_media(media="screen")
        context.close()
    for view in ("light", "dark"):
        shutil.copyfile(OUT / f"decision-{view}.png", ROOT / "docs" / f"page-{view}.png")


PARTS = ("pictures", "browser", "viewers")


def main(parts: Sequence[str] = PARTS) -> int:
    """Draw the pictures and print the budgets, or some of that; 1 if a budget is exceeded."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=SERVICES["Chromium"].runs(), args=FLAGS)
        folder = Path(name) / "demo"
        folder.mkdir()
        if "pictures" in parts:
            with demo(folder) as (url, admin, pages):
                draw(browser, url, admin, pages)
            print(f"pictures in {OUT}\n")
        if {"browser", "viewers"} & {*parts}:
            with large(Path(name)) as (served, crowd):
                if "browser" in parts:
                    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
                    url = f"http://127.0.0.1:{served.port}"
                    sign_in(page, url, ADMIN)
                    rows += measured(page, url, crowd.pages[3][0])
                    page.context.close()
                if "viewers" in parts:
                    rows += watched(crowd, served.pids)
        browser.close()
    print("| what | measured | budget |\n|---|---|---|")
    for what, value, budget, unit in rows:
        print(f"| {what} | {value:.1f} {unit} | {budget:g} {unit} |{'' if value <= budget else ' exceeded'}")
    return 1 if any(value > budget for _, value, budget, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PARTS))
