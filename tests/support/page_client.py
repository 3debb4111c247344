"""A browser without JavaScript for the page, and a page as it reads it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from rainbow.page.views.clusters import TABS
from tests.conftest import Api, jobspec

VOID = {"meta", "link", "input", "br", "img", "hr"}


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
        options = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.faults += [f"{tag} {key}" for key in options if key.startswith("on") or key == "style"]
        if tag == "style" or (tag == "script" and not options.get("src")):
            self.faults.append(f"inline {tag}")
        if options.get("id"):
            self.ids.append(str(options["id"]))
        self.links += [str(options[key]) for key in ("href", "src") if options.get(key)]
        if tag == "form":
            self.forms.append({"action": options.get("action"), "method": options.get("method"), "fields": {}})
        if tag == "input" and options.get("name") and self.forms:
            self.forms[-1]["fields"][options["name"]] = options.get("value", "")

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
        result = self.client.get_cookie("rainbow")
        return result.value if result else ""

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
    result = Read(text)
    assert not result.faults, result.faults
    assert not result.open, result.open
    assert len(set(result.ids)) == len(result.ids)
    return result


def submit(api: Api, token: str, count: int = 1, **more: Any) -> list[str]:
    body = {"jobspec": jobspec(), **more}
    return [api.good("POST", "/v1/jobs", body, token)["id"] for _ in range(count)]


def every_page(api: Api, cluster: str = "oak", job: str = "") -> list[str]:
    """The address of every page that is read, of this cluster and job."""
    results = []
    for rule in api.app.url_map.iter_rules():
        if (
            rule.endpoint.startswith("page.")
            and "GET" in (rule.methods or ())
            and not rule.rule.startswith("/static")
        ):
            path = rule.rule.replace("<id:job_id>", job or "0000").replace("<name>", cluster)
            results += [f"{path}?tab={tab}" for tab in TABS] if rule.endpoint == "page.cluster" else [path]
    return sorted(set(results) - {"/ui/events"})
