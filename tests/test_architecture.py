"""Imports run one way, and the pure part does no I/O."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "rainbow"
# lowest floor first; a part imports what stands below it, or beside it where the floor is named as one family
FLOORS = [
    {"errors", "lazy", "regex", "plugins"},
    {"jobspec", "jobs"},
    {"graph"},
    {"matching"},
    {"selection"},
    {"scheduling"},
    {"store", "process_secrets"},
    {"service"},
    {"api", "client"},
    {"agent"},
    {"cli", "__main__"},
]
LEVEL = {part: level for level, parts in enumerate(FLOORS) for part in parts}
PURE = {part for parts in FLOORS[:6] for part in parts}
CLOCK = re.compile(r"\.(now|utcnow|today)\(")
IMPURE = {
    *(
        "flask",
        "sqlalchemy",
        "alembic",
        "sqlite3",
        "socket",
        "requests",
        "httpx",
        "urllib",
        "uvicorn",
        "click",
        "rich",
    ),
    *("time", "threading", "multiprocessing", "subprocess", "os", "secrets", "uuid"),
}
# these talk to the server over HTTP only
REMOTE = {"agent": {"service", "store", "api"}, "client": {"service", "store", "api"}}


def imported(source, here):
    """Yield the absolute dotted names a module imports, those for type checking left out."""
    tree = ast.parse(source)
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            stem = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def faults(source, path):
    """Yield what a module imports and may not."""
    relative = path.relative_to(ROOT).with_suffix("")
    part = relative.parts[0]
    for name in imported(source, ("rainbow", *relative.parts)):
        top, *rest = name.split(".")
        other = rest[0] if top == "rainbow" and rest else None
        if other in LEVEL and part in LEVEL and (LEVEL[other] > LEVEL[part] or other in REMOTE.get(part, ())):
            yield f"{part} imports {other}"
        if part in PURE and top in IMPURE:
            yield f"{part} imports {name}"
        if part in PURE and top == "datetime" and CLOCK.search(source):
            yield f"{part} reads the clock"  # dates may be written, the time of day is an argument
        if part in PURE and top == "random" and rest and rest[0] != "Random":
            yield f"{part} uses the global {name}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    assert list(faults(path.read_text(), path)) == []


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("from rainbow.service import Service", "matching/walk.py"),
        ("import rainbow.scheduling", "selection/random.py"),
        ("import sqlalchemy as sa", "scheduling/policy.py"),
        ("from time import time", "jobs.py"),
        ("from datetime import UTC, datetime\nwhen = datetime.now(UTC)", "jobs.py"),
        ("from ..store import jobs", "matching/walk.py"),
        ("from rainbow.service import Service", "agent/loop.py"),
    ],
)
def test_wrong_import_is_noticed(line, place):
    assert list(faults(line, ROOT / place))


def test_every_part_has_its_floor():
    parts = {
        path.name.removesuffix(".py") for path in ROOT.iterdir() if path.name not in ("__init__.py", "__pycache__")
    }
    assert {part for part in parts if not part.startswith(".") and part != "py.typed"} == set(LEVEL)


def test_files_stay_under_500_lines():
    files = [p for folder in ("rainbow", "tests", "benchmarks", "demo") for p in (ROOT.parent / folder).rglob("*.py")]
    assert [str(p) for p in files if len(p.read_text().splitlines()) > 500] == []


def test_nothing_is_keyed_by_the_address_of_an_object():
    """Once an object is gone another one may have its address, and inherit what was remembered of the first."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == "id" and isinstance(node.ctx, ast.Load)
    ]
    assert not found, "key by `number` (rainbow/jobspec/request.py) or by Same (rainbow/matching/memory.py)"
