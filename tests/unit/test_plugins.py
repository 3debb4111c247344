"""Plug-ins of installed packages: found as the docstring says, class or instance, and blamed for their own faults."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rainbow.plugins
from rainbow.errors import JobspecError
from rainbow.graph import read_cluster
from rainbow.jobspec import parse_jobspec
from rainbow.matching import match
from rainbow.plugins import PluginFault, Registry, UnknownPlugin
from rainbow.service.scheduler.loop import step_safely
from tests.conftest import Api, grid, jobspec

Install = Callable[[str, str], None]
SELECTORS = """
from rainbow.selection import Choice

class Cheapest:
    def check(self, options):
        if options.get("broken"):
            raise KeyError("broken")
        return []

    def select(self, candidates, states, parameters, options, rng):
        if options.get("fail"):
            raise ValueError("no idea")
        if options.get("elsewhere"):
            return Choice("elsewhere", "cheapest")
        if options.get("nothing"):
            return None
        best = min(candidates, key=lambda one: states[one.cluster]["cost"])
        return Choice(best.cluster, "cheapest")

cheapest = Cheapest()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Let a package be installed: its module, and the entry points of its pyproject.toml."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(module: str, entry_points: str) -> None:
        (tmp_path / "their_package.py").write_text(module)
        folder = tmp_path / "their_package-1.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(entry_points)

    yield put
    sys.modules.pop("their_package", None)
    from rainbow.matching import backends, matchers
    from rainbow.scheduling import policies
    from rainbow.selection import selectors

    for registry in (backends, matchers, policies, selectors):
        registry._installed.clear()


def example() -> str:
    """The entry points of the docstring's example, as pip writes them."""
    result = re.search(r'\[project\.entry-points\."(.*?)"\]\n\s+(\w+) = "(.*?)"', rainbow.plugins.__doc__ or "")
    assert result
    return f"[{result[1]}]\n{result[2]} = {result[3]}\n"


def submit(api: Api, tokens: list[str], **options: Any) -> Any:
    body = {"jobspec": jobspec(), "selector": {"name": "cheapest", "options": options}}
    return api.call("POST", "/v1/jobs", body, *tokens)


@pytest.mark.parametrize("entry", [example(), "[rainbow.selectors]\ncheapest = their_package:cheapest\n"])
def test_example_of_the_docstring_runs_with_a_class_and_with_an_instance(
    api: Api, install: Install, entry: str
) -> None:
    install(SELECTORS, entry)
    tokens = [api.register(name, state={"cost": cost}).token for name, cost in (("oak", 2), ("elm", 1))]
    made = submit(api, tokens)
    assert (made.status_code, made.get_json()["cluster"]) == (201, "elm")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("fail", "ValueError: no idea"),
        ("broken", "KeyError: 'broken'"),
        ("elsewhere", "it chose 'elsewhere', which is no choice among the candidates"),
        ("nothing", "it returned None, which is no choice among the candidates"),
    ],
)
def test_fault_in_a_plug_in_is_told_as_the_plug_ins(api: Api, install: Install, option: str, told: str) -> None:
    install(SELECTORS, example())
    answer = submit(api, [api.register(state={"cost": 1}).token], **{option: True})
    problem = answer.get_json()
    assert (answer.status_code, problem["code"]) == (502, "plugin-failed")
    assert problem["detail"].startswith("plug-in cheapest of rainbow.selectors failed: ")
    assert told in problem["detail"]


def test_plug_in_that_cannot_be_loaded_is_told_so(install: Install) -> None:
    install("raise RuntimeError('half a package')", "[rainbow.selectors]\ncheapest = their_package:Cheapest\n")
    registry: Registry[Any] = Registry("rainbow.selectors")
    with pytest.raises(PluginFault, match=r"plug-in cheapest of rainbow\.selectors failed: RuntimeError: half"):
        registry.get("cheapest")
    with pytest.raises(UnknownPlugin, match="there are: cheapest"):
        registry.get("dearest")


@pytest.mark.parametrize("given", ["class", "instance"])
@pytest.mark.parametrize("factories", [True, False])
def test_class_or_instance_is_a_plug_in_at_every_point(given: str, factories: bool) -> None:
    class Plugin:
        def say(self) -> str:
            return "it"

    registry: Registry[Any] = Registry("rainbow.nothing", factories=factories)
    registry.add("one")(Plugin if given == "class" else Plugin())
    result = registry.get("one")
    assert (result() if factories else result).say() == "it"


NEAR = """
def near(options, vertex, subsystem):
    found = float(vertex["metadata"].get(options["field"], 0))
    return None if abs(found - options["value"]) <= options["within"] else f"{found} is too far"
"""
IO = {
    "graph": {
        "nodes": {"io": {"metadata": {"type": "io"}}, "m": {"metadata": {"type": "shm", "speed": 9.5}}},
        "edges": [{"source": "n0", "target": "m", "relation": "contains"}, {"source": "io", "target": "m"}],
    }
}
ASKED = {"field": "speed", "value": 10, "within": 1}
SLOT = {"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}


def asking(dialect: str, request: Any) -> dict[str, Any]:
    resources = [{"type": "node", "count": 1, "with": [SLOT]}]
    if dialect == "nextgen":
        work = {"type": "node", "count": 1, "requires": [{"name": "io", "near": request}]}
        return {"version": 1, "resources": {"work": work}, "tasks": [{"command": ["true"], "resources": "work"}]}
    task = {"command": ["true"], "slot": "it", "count": {"per_slot": 1}, "resources": {"io": {"near": request}}}
    if dialect == "founding":
        return {"version": 1, "resources": resources, "task": task}
    return {"version": 1, "resources": resources, "tasks": [task], "attributes": {"system": {"duration": 0}}}


@pytest.mark.parametrize("dialect", ["founding", "rfc14", "nextgen"])
def test_matcher_of_an_entry_point_is_reachable_from_every_dialect(install: Install, dialect: str) -> None:
    with pytest.raises(JobspecError):
        parse_jobspec(asking(dialect, [ASKED]))
    install(NEAR, "[rainbow.matchers]\nnear = their_package:near\n")
    cluster = read_cluster(grid(2, 2), name="oak").with_subsystem("io", IO)
    for backend in ("index", "networkx"):
        [yes] = match(parse_jobspec(asking(dialect, [ASKED])), [cluster], backend)
        [no] = match(parse_jobspec(asking(dialect, [{**ASKED, "within": 0.1}])), [cluster], backend)
        assert (yes.matched, no.matched) == (True, False), backend
        assert no.reason
        assert "9.5 is too far" in str(no.reason.text)
    for wrong in ([{"value": 1}], [5], [{"field": 5}]):
        with pytest.raises(JobspecError):
            parse_jobspec(asking(dialect, wrong))
    with pytest.raises(PluginFault, match=r"plug-in near of rainbow\.matchers failed: KeyError: 'within'"):
        [*match(parse_jobspec(asking(dialect, [{"field": "speed", "value": 1}])), [cluster], "networkx")]


def test_backend_is_chosen_per_request(api: Api, install: Install) -> None:
    install(
        "from rainbow.matching import Verdict\n"
        "class Never:\n"
        "    def match(self, request, cluster):\n"
        "        return Verdict(cluster.name, False)\n",
        "[rainbow.backends]\nnever = their_package:Never\n",
    )
    oak = api.register()
    for backend, matches in (("never", 0), ("networkx", 1), (None, 1)):
        answer = api.good("POST", "/v1/match", {"jobspec": jobspec(), "backend": backend}, oak.token)
        assert len(answer["candidates"]) == matches
    api.problem(422, "unsatisfiable", "POST", "/v1/jobs", {"jobspec": jobspec(), "backend": "never"}, oak.token)
    assert api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "backend": "networkx"}, oak.token)["cluster"] == "oak"
    body = {"jobspec": jobspec(), "backend": "x"}
    assert "networkx" in api.problem(422, "plugin-unknown", "POST", "/v1/jobs", body, oak.token)["detail"]


def test_unknown_keys_of_an_envelope_are_refused_with_the_nearest(api: Api) -> None:
    oak = api.register()
    body = {"jobspec": jobspec(), "requester": "ann"}
    for path in ("/v1/jobs", "/v1/match"):
        problem = api.problem(400, "request-invalid", "POST", path, body, oak.token)
        assert (problem["detail"], problem["pointer"]) == (
            "unknown key requester; did you mean requestor?",
            "/requester",
        )
    batch = {"jobs": [body], "asign": "optimal"}
    assert api.problem(400, "request-invalid", "POST", "/v1/jobs:batch", batch, oak.token)["pointer"] == "/asign"
    [answer] = api.good("POST", "/v1/jobs:batch", {"jobs": [body]}, oak.token)["answers"]
    assert (answer["status"], answer["pointer"]) == (400, "/jobs/0/requester")


FAILING = """
class Failing:
    def check(self, settings):
        return {}

    def plan(self, view):
        raise ValueError("no plan today")
"""


def test_a_policy_that_fails_is_named_by_why_and_by_its_clusters_settings(api: Api, install: Install) -> None:
    install(FAILING, "[rainbow.policies]\nfailing = their_package:Failing\n")
    oak = api.register(policy={"name": "failing"})
    job = api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token)["id"]
    api.good("POST", "/v1/clusters/oak/heartbeat", {"agent": "a", "workers": None, "running": []}, oak.secret)
    step_safely(api.service, "oak")
    answer = api.good("GET", f"/v1/jobs/{job}/why?verify=true", None, oak.token)
    assert (answer["wait"]["reason"], answer["verify"]) == ("step-failed", None)
    for text in (answer["wait"]["text"], api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["fault"]):
        assert "plug-in failing of rainbow.policies failed: ValueError: no plan today" in text
