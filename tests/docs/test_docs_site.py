"""The site: the index leads to every page, and the pages made from the code say something of everything."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "index.md").read_text()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that makes pages from the code."""
    monkeypatch.syspath_prepend(DOCS / "site")
    import pages

    yield pages
    sys.modules.pop("pages", None)


def test_index_has_four_doors_and_leads_to_every_page() -> None:
    doors = re.findall(r"^## (\S+?):", INDEX, re.M)
    assert doors == ["Tutorials", "How-to", "Reference", "Explanation"]
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", INDEX.split("## Tutorials")[1]))
    assert {path.name for path in DOCS.glob("*.md")} - {"index.md"} == linked


def test_address_of_a_page_that_has_moved_leads_to_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    monkeypatch.syspath_prepend(DOCS / "site")
    import build

    build.redirect(tmp_path)
    moved = json.loads((DOCS / "moved.json").read_text())
    assert {path.stem for path in tmp_path.iterdir()} == moved.keys()
    for old, new in moved.items():
        assert f'content="0; url={new}.html"' in (tmp_path / f"{old}.html").read_text()
        assert (DOCS / f"{new}.md").exists()
    for name in ("build", "pages"):
        sys.modules.pop(name, None)


def test_every_operation_setting_and_code_is_on_a_generated_page_with_words(site: Any) -> None:
    made = {name: page() for name, page in site.PAGES.items()}
    for path, methods in site.openapi()["paths"].items():
        for method, answer in methods.items():
            assert f"## {method.upper()} {path}\n" in made["http-api.md"]
            assert len(answer["summary"].split()) >= 2, path
    assert all(row.split("|")[3].strip() for row in made["codes.md"].splitlines() if row.startswith("| `"))
    assert made["codes.md"].count("| `") >= 25
    for module, names in site.NAMES.items():
        result = __import__(module, fromlist=names)
        assert [name for name in names if not getattr(result, name).__doc__] == []


def test_every_command_key_and_metric_is_on_the_page_it_is_generated_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "site")
    import reference

    from rainbow.service.core.counters import METRICS
    from rainbow.service.queries.monitoring import OF_ALL

    pages = {path.stem: reference.filled(path.read_text()) for path in DOCS.glob("*.md")}
    assert not [name for name, page in pages.items() if "<!-- generated" in page]
    for name, command in reference.commands():
        assert f"\n## rainbow {name}\n" in pages["reference-cli"]
        assert command.help, name
    assert pages["configuration"].count("\n| `") > 50
    assert not re.findall(r"^\| .*\|\s*\|$", pages["configuration"] + pages["metrics"], re.M)
    assert [
        name for name in METRICS.keys() | {f"rainbow_{one}" for one in OF_ALL} if name not in pages["metrics"]
    ] == []
    for name in ("reference", "pages"):
        sys.modules.pop(name, None)


def test_links_that_leave_the_pages_lead_to_the_repository_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    monkeypatch.syspath_prepend(DOCS / "site")
    import conf

    text = "[a](why.md#x) [b](../README.md) [c](design/no-job-waits-forever.md) [d](match.schema.json) [e](https://x.y/z.py)"
    main = conf.SOURCE
    assert conf.outward(text) == (
        f"[a](why.md#x) [b]({main}README.md) [c]({main}docs/design/no-job-waits-forever.md) "
        f"[d]({main}docs/match.schema.json) [e](https://x.y/z.py)"
    )
    sys.modules.pop("conf", None)
