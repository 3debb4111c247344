"""Pages that are made from the code: HTTP API, Python API, codes."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rainbow import errors
from rainbow.api import create_app
from rainbow.api.problems import STATUS
from rainbow.matching import Why
from rainbow.plugins import PluginFault, UnknownPlugin
from rainbow.service import Service, Settings
from rainbow.state_machine import JobState, TaskState, WorkerState
from rainbow.store import open_store

Document = Mapping[str, Any]


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a table of Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


# ── the HTTP API ────────────────────────────────────────────────────────────────────────────────────────────


def openapi() -> Document:
    """Return the OpenAPI document of a server."""
    logging.disable(logging.CRITICAL)  # what a server says at its start
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/pages.db")
        document: Document = create_app(Service(store, Settings())).test_client().get("/openapi.json").get_json()
        store.close()
    logging.disable(logging.NOTSET)
    return document


def http_api() -> str:
    """Return the page of every operation."""
    document = openapi()
    parts = [
        "# HTTP API: every operation",
        "Generated from the server's `/openapi.json`. [The HTTP API](reference-http.md) says what operations have in "
        "common: credentials, problems, idempotency, events.",
    ]
    for path, methods in document["paths"].items():
        parts += [operation(path, method, answer) for method, answer in methods.items()]
    parts.append("## Schemas")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += [f"### {name}", fenced(schema)]
    return "\n\n".join(parts) + "\n"


def operation(path: str, method: str, document: Document) -> str:
    """Return the section of one operation."""
    parts = [f"## {method.upper()} {path}", f"{document['summary']} {document['description']}".strip()]
    rows = [[f"`{one['name']}`", one["in"], said(one["schema"])] for one in document["parameters"]]
    if rows:
        parts.append(table(["parameter", "in", "form"], rows))
    for kind, body in document.get("requestBody", {}).get("content", {}).items():
        parts.append(f"Body, `{kind}`: {said(body['schema'])}")
        if "example" in body:
            parts.append(fenced(body["example"]))
    for code, answer in document["responses"].items():
        if code.startswith("2"):
            kinds = [f"`{kind}`: {said(body['schema'])}" for kind, body in answer.get("content", {}).items()]
            parts.append(f"Answers {code}{', ' if kinds else ''}{'; '.join(kinds)}.")
    return "\n\n".join(parts)


def said(schema: Document) -> str:
    """Return a schema in a few words, with a link if it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(said(one) for one in schema.get("anyOf", schema.get("oneOf", [])))
    words = [f"`{json.dumps(schema['enum'])}`" if "enum" in schema else str(schema.get("type", "any"))]
    words += [f"`{schema['pattern']}`"] if "pattern" in schema else []
    words += [f"{key} {schema[key]}" for key in ("minimum", "maximum", "maxLength", "default") if key in schema]
    return ", ".join(words)


def fenced(value: Any) -> str:
    """Return a value as a block of JSON."""
    return f"```json\n{json.dumps(value, indent=1)}\n```"


# ── the Python API ──────────────────────────────────────────────────────────────────────────────────────────

MODULES = {
    "rainbow": "Match, select and read graphs and jobspecs, without a server.",
    "rainbow.client": "Call a server.",
    "rainbow.matching": "Verdicts, backends and matchers.",
    "rainbow.selection": "Choices and selectors.",
    "rainbow.scheduling.interface": "Policies: what they see and what they answer.",
    "rainbow.agent.executors.interface": "Executors.",
    "rainbow.graph.sources": "Graph sources.",
    "rainbow.testing": "Contract suites for authors of plug-ins.",
}
NAMES = {
    "rainbow": ["read_cluster", "parse_jobspec", "match", "select", "write_jgf"],
    "rainbow.client": ["Client", "Problem"],
    "rainbow.matching": ["Verdict", "Reason", "Take", "Budget", "Backend", "Matcher"],
    "rainbow.selection": ["Choice", "Selector"],
    "rainbow.scheduling.interface": ["Policy", "View", "Plan", "Start", "Stop", "Reserve", "Wait"],
    "rainbow.agent.executors.interface": ["Executor", "Suspends", "Leased", "Explains", "Writes", "open_executor"],
    "rainbow.graph.sources": ["GraphSource"],
    "rainbow.testing": [
        *("BackendContract", "ExecutorContract", "GraphSourceContract"),
        *("MatcherContract", "PolicyContract", "SelectorContract"),
    ],
}


def python_api() -> str:
    """Return the page of the Python API, which autodoc fills."""
    parts = [
        "# Python API",
        "Generated from the docstrings. [Match and choose in Python](networkx.md) begins with examples.",
    ]
    for module, words in MODULES.items():
        parts += [f"## {module}", words]
        for name in NAMES[module]:
            kind = "autofunction" if name[0].islower() else "autoclass"
            members = "" if kind == "autofunction" or module == "rainbow.testing" else "   :members:\n"
            members += "   :inherited-members:\n" if name == "Client" else ""
            parts.append(f"```{{eval-rst}}\n.. {kind}:: {module}.{name}\n{members}```")
    return "\n\n".join(parts) + "\n"


# ── codes ──────────────────────────────────────────────────────────────────────────────────────


def every(fault: type[errors.RainbowError]) -> Iterator[type[errors.RainbowError]]:
    """Yield a class of errors and all below it."""
    yield fault
    for below in fault.__subclasses__():
        yield from every(below)


def codes() -> str:
    """Return the page of codes: errors, reasons of matching, states."""
    known = {
        one.code: one
        for one in (*every(errors.RainbowError), PluginFault, UnknownPlugin)
        if one.__module__.startswith("rainbow.")
    }
    rows = [[f"`{code}`", str(STATUS.get(code, "")), purpose(one.__doc__)] for code, one in sorted(known.items())]
    parts = ["# Codes", "Generated from the code. A code never changes; texts may.", "## Errors"]
    parts.append(table(["code", "HTTP", "meaning"], rows))
    parts += [
        "## Why a cluster does not match",
        "[Find out why](why.md) explains each.",
        ", ".join(f"`{why}`" for why in Why),
    ]
    for title, states in (("jobs", JobState), ("tasks", TaskState), ("workers", WorkerState)):
        parts += [f"## States of {title}", ", ".join(f"`{state}`" for state in states)]
    return "\n\n".join(parts) + "\n"


def purpose(text: str | None) -> str:
    """Return the first line of a docstring."""
    return (text or "").strip().partition("\n")[0]


PAGES: Mapping[str, Callable[[], str]] = {
    "http-api.md": http_api,
    "python-api.md": python_api,
    "codes.md": codes,
}
