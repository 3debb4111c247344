"""The shape of the code: files, the imports between them, and the floors they are on (docs/design/floors.json).

A part is a file or a sub-folder of a folder. floors.json gives every folder its floors, lowest first; an import goes
to a lower floor, whether it is made at the start, inside a function or for type checking.
"""

import ast
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import networkx as nx

MOST_LINES = 500  # a longer file is two ideas
FEWEST_LINES = 60  # a shorter one with a single importer is none
MOST_OF_A_FUNCTION = 60
MOST_FILES = 16  # of a folder
MOST_PARTS = 496  # certificates, outcomes, fair turns, the bridges and Slurm's commands came in
TERMS = {"scheduling", "matching", "monitoring", "engine"}  # words of the field that look like participles
TERMS |= {"unplaced"}  # the state UNPLACED
SHORT_PLUGINS = {"rainbow/graph/sources/flux.py", "rainbow/scheduling/delegate.py", "rainbow/__main__.py"}
MIGRATIONS = "migrations"  # numbered, never moved, and Alembic's own

PURE = {
    *("cache", "errors", "plugins", "regex", "state_machine", "text"),
    *("accounts", "jobspec", "graph", "matching", "selection", "scheduling", "forecast", "simulation"),
}
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
CLOCK = re.compile(r"\.(now|utcnow|today)\(")  # dates may be written, the time of day is an argument
REMOTE = {"agent": {"service", "store", "api"}, "client": {"service", "store", "api"}}  # they speak HTTP to it


@dataclass(frozen=True)
class Imported:
    """One name that a file imports, by the line of the import."""

    module: str
    name: str | None
    line: int
    local: str


@dataclass(frozen=True)
class File:
    """One file of the package."""

    path: Path  # from the root of the checkout
    module: str
    text: str
    tree: ast.Module = field(repr=False)

    @classmethod
    def read(cls, root, path):
        text, short = path.read_text(encoding="utf-8"), path.relative_to(root)
        parts = short.with_suffix("").parts
        return cls(short, ".".join(parts[:-1] if parts[-1] == "__init__" else parts), text, ast.parse(text))

    @property
    def lines(self):
        return len(self.text.splitlines())

    @property
    def is_package(self):
        return self.path.name == "__init__.py"

    @property
    def part(self):
        """The part of rainbow/ that the file is, or is in."""
        return self.module.split(".")[1] if "." in self.module else ""

    @cached_property
    def imports(self):
        """Everything it imports, of the package or not: {(module, name, line, local name)}."""
        return list(self._imports())

    def _imports(self):
        here = self.module.split(".") if self.is_package else self.module.split(".")[:-1]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (Imported(a.name, None, node.lineno, a.asname or a.name) for a in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = here[: len(here) - node.level + 1] if node.level else []
                stem = ".".join([*above, *filter(None, [node.module])])
                yield from (Imported(stem, a.name, node.lineno, a.asname or a.name) for a in node.names)

    @cached_property
    def functions(self):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]


@dataclass(frozen=True)
class Edge:
    """An import from one file of the package to another, where the name is defined."""

    source: File
    target: str
    line: int

    @cached_property
    def meeting(self):
        """The folder that has both ends in it, and the parts of that folder where they are; None: there is none."""
        here, there = self.source.module.split("."), self.target.split(".")
        depth = next(
            (k for k, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there))
        )
        return "/".join(here[:depth]), *(parts[depth] if depth < len(parts) else None for parts in (here, there))


class Code:
    """The files of `rainbow/` in a checkout, and what imports what."""

    def __init__(self, root):
        paths = (path for path in sorted((root / "rainbow").rglob("*.py")) if MIGRATIONS not in path.parts)
        self.root = root
        self.files = {file.module: file for file in (File.read(root, path) for path in paths)}

    @cached_property
    def edges(self):
        """Every import between two files; what a package offers of its own files is left out."""
        return [edge for edge in self._found() if not self._offers(edge)]

    @cached_property
    def importers(self):
        """{module: the modules that import it}."""
        results = defaultdict(set)
        for edge in self._found():
            results[edge.target].add(edge.source.module)
        return results

    def _found(self):
        for file in self.files.values():
            for one in file.imports:
                target = self._home(one)
                if target in self.files and target != file.module:
                    yield Edge(file, target, one.line)

    def _home(self, one, seen=()):
        """The module where an imported name is defined: what packages offer is followed."""
        if one.name and f"{one.module}.{one.name}" in self.files:
            return f"{one.module}.{one.name}"
        package = self.files.get(one.module)
        offered = package and package.is_package and one not in seen and self._offered[one.module].get(one.name)
        return self._home(offered, (*seen, one)) if offered else one.module

    @cached_property
    def _offered(self):
        packages = (file for file in self.files.values() if file.is_package)
        return {file.module: {one.local: one for one in file.imports} for file in packages}

    @staticmethod
    def _offers(edge):
        return edge.source.is_package and edge.target.startswith(edge.source.module + ".")


class Floors:
    """floors.json: of every folder, on which floor each of its parts is."""

    def __init__(self, path):
        rows = json.loads(path.read_text(encoding="utf-8"))
        self.level = {
            folder: {part: level for level, parts in enumerate(floors) for part in parts}
            for folder, floors in rows.items()
        }

    @property
    def parts(self):
        return sum(map(len, self.level.values()))


def uphill(code, floors):
    """Imports that do not go to a lower floor."""
    for edge in code.edges:
        folder, one, other = edge.meeting
        where = f"{edge.source.path}:{edge.line}"
        level = floors.level.get(folder, {})
        if other is None:
            if folder != "rainbow":
                yield f"{where} imports what {folder}/__init__.py defines, which is above it"
        elif one in level and other in level and level[other] >= level[one]:
            yield f"{where}: {one} imports {edge.target}, which is not below it in {folder}"


def without_floor(code, floors):
    """Parts that floors.json does not name, and names of parts that are not there."""
    folders = {str(file.path.parent) for file in code.files.values() if file.is_package}
    for folder in sorted(folders):
        here = code.root / folder
        parts = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
        parts -= {"__init__", "__main__", MIGRATIONS}
        named = set(floors.level.get(folder, ()))
        yield from (f"{folder}/{part} is on no floor" for part in sorted(parts - named))
        yield from (f"{folder}/{part} has a floor and is not there" for part in sorted(named - parts))
    yield from (f"{folder} has floors and is not there" for folder in sorted(floors.level.keys() - folders))


def knots(code):
    """Files that import each other in a ring, and parts of one folder that do."""
    graphs = defaultdict(nx.DiGraph)
    for edge in code.edges:
        folder, one, other = edge.meeting
        graphs["files"].add_edge(edge.source.module, edge.target)
        if one and other:
            graphs[folder].add_edge(one, other)
    for where, graph in graphs.items():
        for ring in nx.strongly_connected_components(graph):
            if len(ring) > 1:
                yield f"{where}: {', '.join(sorted(ring))} import each other"


def sizes(code):
    """Files that are two ideas or none, functions and folders that are too long."""
    for module, file in code.files.items():
        if file.lines > MOST_LINES:
            yield f"{file.path} has {file.lines} lines, more than {MOST_LINES}"
        lonely = len(code.importers[module]) == 1 and not file.is_package and str(file.path) not in SHORT_PLUGINS
        if lonely and file.lines < FEWEST_LINES:
            yield f"{file.path} has {file.lines} lines, and {min(code.importers[module])} alone imports it"
        for function in file.functions:
            length = function.end_lineno - function.lineno + 1
            if length > MOST_OF_A_FUNCTION:
                yield f"{file.path}:{function.lineno} {function.name} has {length} lines"
    folders = defaultdict(int)
    for file in code.files.values():
        folders[file.path.parent] += not file.is_package
    yield from (f"{folder} has {count} files" for folder, count in folders.items() if count > MOST_FILES)


def participles(code):
    """Files that are named by what is done rather than by what they hold."""
    for file in code.files.values():
        last = file.path.stem.rsplit("_", 1)[-1]
        if re.search(r"(ing|ed)$", last) and last not in TERMS:
            yield f"{file.path} is named by a participle"


def impurities(code):
    """Clocks, chance, threads and I/O in the pure part; what speaks HTTP to the server and imports it."""
    for file in code.files.values():
        for one in file.imports:
            top, *rest = one.module.split(".")
            if file.part in PURE and (top in IMPURE or (top == "random" and one.name not in (None, "Random"))):
                yield f"{file.path}:{one.line} imports {one.module}, and is pure"
            if file.part in PURE and top == "datetime" and CLOCK.search(file.text):
                yield f"{file.path}:{one.line} reads the clock, and is pure"
            other = rest[0] if rest else one.name
            if top == "rainbow" and other in REMOTE.get(file.part, ()):
                yield f"{file.path}:{one.line} imports rainbow.{other}, which it reaches over HTTP"


def keyed_by_address(code):
    """Uses of `id`: once an object is gone another one may have its address, and what was remembered of the first."""
    for file in code.files.values():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Name) and node.id == "id" and isinstance(node.ctx, ast.Load):
                yield f"{file.path}:{node.lineno} uses id(): a `number` or Same (rainbow/cache.py) is a key"
