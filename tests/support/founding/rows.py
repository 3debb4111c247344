"""The list of the founding texts' rows, what is seen of each at the doors, and the page that is made from it.

`python -m tests.support.founding.rows` writes the rows into docs/mapping.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
TEXTS = {
    "rainbow": "Rainbow's algorithms",
    "scoot": "Scoot's scheduler",
    "ducc": "DUCC's Resource Manager",
    "grid_engine": "Grid Engine's scheduler thread",
}
PAGE = ROOT / "docs" / "mapping.md"
BEGIN, END = "<!-- rows: begin -->", "<!-- rows: end -->"


def rows_of(text: str) -> list[dict[str, Any]]:
    """Return the rows of a text."""
    results: list[dict[str, Any]] = yaml.safe_load(
        (ROOT / "tests" / "cases" / "founding" / f"{text}.yaml").read_text()
    )
    return results


def scenarios_of(text: str) -> Mapping[str, Any]:
    """Return {name: scenario} of a text."""
    return {one.__name__: one for one in import_module(f"tests.support.founding.{text}").SCENARIOS}


def config_of(text: str) -> str:
    """Return the configuration of the server at which a text is tried."""
    return str(import_module(f"tests.support.founding.{text}").CONFIG)


def found_at(seen: Any, path: str) -> Any:
    """Return what is at a path of an answer.

    >>> found_at({"a": [{"b": 1}]}, "a/0/b")
    1
    """
    for step in path.split("/") if path else ():
        seen = seen[int(step)] if isinstance(seen, (list, tuple)) else seen[step]
    return seen


def as_expected(seen: Any, requirement: Any) -> bool:
    """Return whether an answer is as expected; "~text" is a part of a text.

    >>> as_expected({"a": [1.0, "x y"]}, {"a": [1, "~y"]}), as_expected(True, 1), as_expected(["a"], [])
    (True, False, False)
    """
    if isinstance(requirement, str) and requirement.startswith("~"):
        return isinstance(seen, str) and requirement[1:] in seen
    if isinstance(requirement, Mapping):
        same = isinstance(seen, Mapping) and seen.keys() == requirement.keys()
        return same and all(as_expected(seen[key], one) for key, one in requirement.items())
    if isinstance(requirement, list):
        same = isinstance(seen, (list, tuple)) and len(seen) == len(requirement)
        return same and all(map(as_expected, seen, requirement))
    if isinstance(requirement, bool) or isinstance(seen, bool):
        return seen is requirement
    if isinstance(requirement, (int, float)) and isinstance(seen, (int, float)):
        return math.isclose(seen, requirement, rel_tol=1e-9)
    return bool(seen == requirement)


def unexpected(row: Mapping[str, Any], seen: Any) -> Iterator[str]:
    """Yield what of a row is not as expected; `seen` returns a scenario's answers by its name."""
    for path, requirement in row["expect"].items():
        name, _, rest = path.partition("/")
        answer = found_at(seen(name), rest)
        if not as_expected(answer, requirement):
            yield f"row {row['row']} ({row['stated']}): {path} is {answer!r}, expected {requirement!r}"


def page() -> str:
    """Return the part of docs/mapping.md that the list makes."""
    lines = [BEGIN]
    for text, title in TEXTS.items():
        lines += [
            "",
            f"### {title}",
            "",
            "| row | what the text states | in the code | in the docs | otherwise because |",
        ]
        lines += ["|---|---|---|---|---|"]
        for row in rows_of(text):
            code = f"[{row['here'].removeprefix('rainbow/')}](../{row['here']})"
            docs = row["docs"].removeprefix("docs/")
            record = row.get("record", "").removeprefix("docs/")
            why = f"[{record.removeprefix('design/').removesuffix('.md')}]({record})" if record else ""
            stated = row["stated"].replace("|", "\\|")
            lines.append(f"| {row['row']} | {stated} | {code} | [{docs.partition('.md')[0]}]({docs}) | {why} |")
    return "\n".join([*lines, "", END])


def write() -> None:
    """Write the rows into docs/mapping.md."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + page() + rest.partition(END)[2])


if __name__ == "__main__":
    write()
