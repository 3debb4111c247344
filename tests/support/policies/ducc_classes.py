"""A `ducc.classes` text → the same said in our YAML, fault for fault: what was written twice stays twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

KEYS = {
    "share-quantum": "quantum",
    "search-order": "search_order",
    "initialization-cap": "initialization_cap",
    "expand-by-doubling": "expand_by_doubling",
    "use-prediction": "use_prediction",
    "prediction-fudge": "prediction_fudge",
    "max-processes": "max_processes",
    "max-machines": "max_machines",
    "max-allotment": "max_allotment",
}
NODES = {"a.nodes": ["na1", "na2"], "adup.nodes": ["na1"], "b.nodes": ["nb1"], "s.nodes": ["ns1"]}
SECTIONS = {"Nodepool": "nodepools", "Class": "classes", "User": "users"}
WITHOUT_EFFECT = {"domain", "enforce"}  # of the original's transport, or read by nothing there
MOST = "2147483647"  # how the original writes "no cap"


def as_yaml(text: str) -> str:
    """Write the stanzas of a ducc.classes text as YAML."""
    lines: dict[str, list[str]] = {}
    for kind, name, parent, body in _stanzas(text):
        entries = lines.setdefault(SECTIONS.get(kind, kind), [])
        entries.append(f"  {_quoted(name)}:")
        entries += [f"    parent: {_quoted(parent)}"] if parent else []
        entries += [f"    {key}: {value}" for key, value in _entries(body)]
        entries += [] if parent or body.strip() else ["    {}"]
    return "\n".join(line for section, entries in lines.items() for line in (f"{section}:", *entries))


def _stanzas(text: str) -> Iterator[tuple[str, str, str, str]]:
    for match in re.finditer(r"(\w+)\s+([^\s{]+)(?:\s+([^\s{]+))?\s*\{([^}]*)\}", text):
        yield match[1], match[2], match[3] or "", match[4]


def _entries(body: str) -> Iterator[tuple[str, str]]:
    for statement in re.split(r"[;\n]", body):
        words = statement.replace("=", " ").split()
        if words and words[0] not in WITHOUT_EFFECT:
            yield from _entry(words[0], words[1:])


def _entry(key: str, values: list[str]) -> Iterator[tuple[str, str]]:
    value = " ".join(values)
    if key == "nodefile":
        yield "nodes", str(NODES.get(value, [value]))
    elif key == "users":
        yield key, str(values)
    elif key == "prediction-fudge":
        yield KEYS[key], str(int(value) / 1000)
    else:
        yield _quoted(KEYS.get(key, key)), value if re.fullmatch(r"\d+|true|false", value) else _quoted(value)


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
