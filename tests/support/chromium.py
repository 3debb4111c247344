"""A real Chromium and a real server behind it: clusters, jobs that run, wait and have ended, hostile names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from rainbow.cli.demo.processes import process, server
from rainbow.client import Client
from rainbow.store import open_store
from tests.conftest import grid, jobspec
from tests.support import past
from tests.support.services import SERVICES

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
LEAST = {"resultTypes": ["violations"], "selectors": False, "preload": False, "iframes": False}  # of what axe tells
DECISIONS, BARS = 500, 10_000
HOSTILE = "<img src=x onerror=alert(1)>\u202etxt"


@dataclass
class Site:
    """A server with something to look at."""

    url: str
    admin: str
    clusters: dict[str, Any]
    jobs: dict[str, str]
    agents: dict[str, Any]


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Run a server with two clusters and their agents, a third that has none, and jobs, many of them long ago."""
    with server(folder) as there, ExitStack() as running:
        made, agents = {}, {}
        for name, nodes in (("oak", 4), ("elm", 2), ("ash", 2)):
            with Client(there.url, there.secret) as client:
                made[name] = client.register_cluster(name, grid(nodes, 2))
            if name != "ash":
                words = ["agent", "--cluster", name, "--executor", "local", "--url", there.url]
                environment = {"RAINBOW_SECRET": made[name]["secret"]}
                agents[name] = running.enter_context(process(words, folder / f"{name}.log", environment))
        with Client(there.url, [one["token"] for one in made.values()]) as client:
            jobs = {name: _submitted(client, name, *options) for name, options in JOBS.items()}
            client.wait(jobs["done"], 30)
            client.wait(jobs["many"], 30)
        store = open_store(str(folder / "rainbow.db"))
        past.jobs_like(store, jobs["done"], DECISIONS, time.time())
        past.tasks_of(store, jobs["many"], BARS, time.time())
        store.close()
        admin = (folder / "rainbow-admin.secret").read_text().strip()
        yield Site(there.url, admin, made, jobs, agents)
        for agent in agents.values():  # all together
            agent.terminate()


JOBS: dict[str, tuple[Any, ...]] = {
    "done": (["sh", "-c", "printf '\\033[31mred\\033[0m <b>bold</b>\\n'"], "elm", 1),
    "many": (["true"], "elm", 1),
    "wide": (["sleep", "600"], "oak", 4),
    "late": (["sleep", "600"], "oak", 4),
    "hostile": (["true"], "ash", 1),
}


def _submitted(client: Client, name: str, command: list[str], cluster: str, nodes: int) -> str:
    spec = jobspec(nodes, command, duration=3600)
    spec["resources"][0]["with"][0]["with"][0]["count"] = 2
    named = HOSTILE if name == "hostile" else name
    return str(client.submit(spec, name=named, clusters=[cluster], requestor=named)["id"])


@dataclass
class Look:
    """One browser; its pages are closed after each test, and what they complained of is kept."""

    browser: Browser
    site: Site
    faults: list[str] = field(default_factory=list)
    state: Any = None

    @contextmanager
    def page(self, signed: bool = True, **more: Any) -> Iterator[Page]:
        """Open a page, signed in as the administrator who may act."""
        if signed and self.state is None:
            with self.page(signed=False) as first:
                sign_in(first, self.site.url, self.site.admin)
                self.state = first.context.storage_state()
        options = {"viewport": {"width": 1280, "height": 900}, "base_url": self.site.url, **more}
        context: BrowserContext = self.browser.new_context(storage_state=self.state if signed else None, **options)
        try:
            made = context.new_page()
            made.on("console", lambda answer: answer.type in ("error", "warning") and self.faults.append(answer.text))
            made.on("pageerror", lambda fault: self.faults.append(str(fault)))
            made.on("dialog", lambda box: (self.faults.append(f"dialog {box.message}"), box.dismiss()))
            yield made
        finally:
            context.close()


def sign_in(page: Page, url: str, *tokens: str, acts: bool = True) -> None:
    """Sign in by the login page."""
    page.goto(f"{url}/login")
    page.fill("#tokens", "\n".join(tokens))
    if acts:
        page.check("input[name=acts]")
    page.click("main button")
    page.wait_for_url("**/fleet")


@contextmanager
def look(folder: Path) -> Iterator[Look]:
    """Run the server and the browser."""
    path = SERVICES["Chromium"].runs()
    with site(folder) as there, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield Look(browser, there)
        finally:
            browser.close()


class Axe:
    """axe-core in a page; it is brought in past the page's policy, as no page could."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Runtime.evaluate", {"expression": AXE})

    def violations(self, rules: Sequence[str] = ()) -> list[str]:
        """Return what axe-core finds wrong by these rules, or by all."""
        options = json.dumps({**LEAST, **({"runOnly": list(rules)} if rules else {})})
        call = {"expression": f"axe.run({options}).then(found => JSON.stringify(found.violations))"}
        answer = self._session.send("Runtime.evaluate", {**call, "awaitPromise": True, "returnByValue": True})
        results = json.loads(answer["result"]["value"])
        return [f"{one['id']}: {one['nodes'][0]['html'][:160]} ({len(one['nodes'])})" for one in results]
