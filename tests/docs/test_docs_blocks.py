"""Each block of YAML, JSON and TOML in the pages is read by the reader it is written for, and each anchor exists."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import rainbow
from rainbow.agent.executors.slurm.accounts import read_users
from rainbow.errors import InputError
from rainbow.graph.sources import graph_sources
from rainbow.scheduling import policies
from rainbow.service.core.counters import METRICS
from rainbow.service.core.settings import settings_of
from rainbow.service.queries.monitoring import OF_ALL
from tests.support.settings_documents import read_settings

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DATA = re.compile(
    r"^```(yaml|json|toml)\n(.*?)^```|^cat > \S+\.(?:yaml|json|toml) <<'EOF'\n(.*?)^EOF", re.MULTILINE | re.DOTALL
)
ANY = {"resources": {"work": {"type": "core"}}, "tasks": [{"command": ["true"], "resources": "work"}]}


class NotRead(AssertionError):
    """A block that its reader does not take as it is written."""


def jobspec(text: str) -> None:
    """Read a jobspec, or a part of one, without a warning."""
    options = yaml.safe_load(text)
    whole = {"tasks", "task", "groups"} & set(options)
    read = rainbow.parse_jobspec(
        text if whole else {**options, **{key: ANY[key] for key in ANY if key not in options}}
    )
    if read.warnings:
        raise NotRead(read.warnings)


def for_slurm(text: str) -> None:
    """Read a jobspec without a warning but that other clusters ignore its words for Slurm."""
    warnings = rainbow.parse_jobspec(text).warnings
    if others := [
        one for one in warnings if not re.search(r"only (resource managers|clusters) .*[Ss]lurm", str(one))
    ]:
        raise NotRead(others)


def dependencies(text: str) -> None:
    """Read entries of attributes.system."""
    jobspec(yaml.safe_dump({"attributes": {"system": yaml.safe_load(text)}}))


def config(text: str) -> None:
    """Read rainbow.yaml without a warning."""
    if settings_of(text).warnings:
        raise NotRead(settings_of(text).warnings)


def settings(policy: str) -> Callable[[str], None]:
    """Return the reader of a policy's settings."""
    return lambda text: void(read_settings(text, policies.get(policy).check))


def simulated(text: str) -> None:
    """Read what `rainbow policy simulate` compares."""
    options = yaml.safe_load(text)
    if not set(options) <= {"policy", "settings"}:
        raise NotRead(options)
    settings(options["policy"])(yaml.safe_dump(options.get("settings", {})))


def graph(text: str) -> None:
    """Read a cluster's graph."""
    rainbow.read_cluster(json.loads(text))


def users(text: str) -> None:
    """Read users.yaml."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        read_users(Path(file.name))


def prometheus(text: str) -> None:
    """Check the keys that Prometheus knows, and that each metric of a rule is one of ours."""
    options = yaml.safe_load(text)
    groups, jobs = options.get("groups", []), options.get("scrape_configs", [])
    rules = [rule for group in groups for rule in group["rules"]]
    fits = [set(one) == {"name", "rules"} for one in groups]
    fits += [set(one) <= {"alert", "expr", "for"} for one in rules]
    fits += [set(one) <= {"job_name", "authorization", "static_configs"} for one in jobs]
    known = {*METRICS, *(f"rainbow_{one}" for one in OF_ALL)}
    named = {word for rule in rules for word in re.findall(r"rainbow_\w+?(?=_sum\b|_count\b|\b)", rule["expr"])}
    if not set(options) <= {"groups", "scrape_configs"} or not all(fits) or named - known:
        raise NotRead(sorted(named - known) or options)


def received(text: str) -> None:
    """Validate what an agent receives by the API's own schema."""
    document = api()
    schema = {"$ref": "#/components/schemas/Received", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def entry_points(text: str) -> None:
    """Read the part of a pyproject.toml that declares a graph source."""
    if set(tomllib.loads(text)["project"]["entry-points"]) != {graph_sources.group}:
        raise NotRead(text)


def patroni(text: str) -> None:
    """Compare a configuration of Patroni with what the loopback script writes, which tests start."""
    script = (ROOT / "deploy" / "patroni" / "loopback.sh").read_text()
    written = yaml.safe_load(re.sub(r"\$\{\w+:-(\w+)\}", r"\1", script.split("<<YAML\n")[1].split("\nYAML")[0]))
    document = yaml.safe_load(text)
    if document["bootstrap"] != written["bootstrap"] or document.keys() != written.keys():
        raise NotRead(written["bootstrap"])


def void(_: object) -> None:
    """Forget what was read."""


def api() -> Mapping[str, Any]:
    """Return the OpenAPI document."""
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        import pages
    finally:
        sys.path.pop(0)
        sys.modules.pop("pages", None)
    results: Mapping[str, Any] = pages.openapi()
    return results


# The reader of each block, page by page; graph-format.md and plugins.md have tests of their own.
READERS: Mapping[str, list[Callable[[str], None]]] = {
    "certificates.md": [graph, jobspec, jobspec],
    "choose-by-time.md": [config],
    "run-models.md": [config],
    "coming-from-others.md": [jobspec],
    "dependencies.md": [jobspec, dependencies],
    "fair-share.md": [settings("fair_share"), jobspec],
    "first-department.md": [config],
    "high-availability.md": [patroni],
    "importing.md": [entry_points],
    "joining.md": [jobspec],
    "jobspec.md": [jobspec] * 10,
    "load-based.md": [settings("load_based")],
    "metrics.md": [prometheus, prometheus],
    "priority.md": [settings("priority"), settings("priority")],
    "reference-agent.md": [received],
    "selection.md": [config],
    "simulating.md": [simulated] * 3,
    "slurm.md": [for_slurm, jobspec, users],
}
ELSEWHERE = {"graph-format.md", "plugins.md"}


def blocks(page: str) -> list[str]:
    """Return the blocks of data on a page, and the files of data that it makes."""
    return [data or file for _, data, file in DATA.findall(PAGES[page].read_text())]


CASES = [
    pytest.param(reader, text, id=f"{page}-{k}")
    for page, readers in READERS.items()
    for k, (reader, text) in enumerate(zip(readers, blocks(page), strict=True))
]


def test_every_block_of_data_has_a_reader() -> None:
    assert {page for page in PAGES if blocks(page)} == READERS.keys() | ELSEWHERE
    kinds = {kind for page in PAGES.values() for kind, _ in BLOCK.findall(page.read_text())}
    assert kinds <= {"yaml", "json", "toml", "python", "text", "sh", "nginx"}


@pytest.mark.parametrize(("reader", "text"), CASES)
def test_block_is_read(reader: Callable[[str], None], text: str) -> None:
    reader(text)


@pytest.mark.parametrize(("reader", "text"), CASES)
def test_block_is_refused_when_a_key_of_it_is_misspelt(reader: Callable[[str], None], text: str) -> None:
    keys = re.findall(r"^(?:- )?[{\"]?\"?([a-z_]+)\"?(?=:)", text, re.MULTILINE) or ["project"]
    for key in keys:
        wrong = re.sub(rf"\b{key}\b(?=[\":.])", f"{key}x", text, count=1)
        with pytest.raises(
            (InputError, NotRead, LookupError, jsonschema.ValidationError, rainbow.errors.RainbowError)
        ):
            reader(wrong)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page",
    [*PAGES.values(), ROOT / "CHANGELOG.md", *sorted((ROOT / "docs/design").glob("*.md"))],
    ids=lambda p: p.name,
)
def test_every_anchor_exists_and_every_outward_link_is_an_address(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
        there = (page.parent / target) if target else page
        headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", there.read_text(), flags=re.S | re.M), re.M)
        assert anchor in [slug(heading) for heading in headings], (target, anchor)
    for address in re.findall(r"\]\((\w+:[^)]*)\)", text):
        assert re.fullmatch(r"https://[\w.-]+\.[a-z]{2,}(/[\w./#%~-]*)?", address), address
