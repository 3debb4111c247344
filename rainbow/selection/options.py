"""Options of the selector `constraint`: priorities and groups, read, checked and warned of.

priorities       list of {priority: number, steps: [{instruction: argument}]}, or YAML text of it;
                 with group: NAME a priority is tried for the clusters of that group only
groups           {name: [names of clusters]}, where * is any text, ? any character, [ab] one of these
uninformed_sort  what a sort uses whose variable no cluster gives; cost_per_node_hour unless given
stale_after      seconds; a cluster whose state.age is larger is barred
stated           variables that count as stated though no candidate has them: clusters of other servers do

A warning is about priorities that can be used but may not mean what their author thinks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import yaml

from rainbow.errors import SelectionError
from rainbow.selection.expression.analysis import RISES, SIZE, Known, Trend, bounds, narrowed, never, trend
from rainbow.selection.expression.compiler import Expression, compile_expression, split_calc
from rainbow.selection.variables import ACCOUNT, FORECAST, MATCHED, MODEL, OURS
from rainbow.text import meant

MAX_GROUPS = 256
MAX_NAMES = 10_000  # in all groups
MAX_PATTERNS = 128  # of these, with * ? or [
MAX_NAME = 100  # characters, as of a cluster's name


@dataclass(frozen=True, slots=True)
class Group:
    """The clusters of a group: by name, and by pattern."""

    names: frozenset[str]
    patterns: tuple[str, ...] = ()

    def __contains__(self, cluster: str) -> bool:
        """Return whether a cluster is of the group.

        >>> "east-2" in Group(frozenset(["alpha"]), ("east-*",)), "west-1" in Group(frozenset(), ("east-*",))
        (True, False)
        """
        return cluster in self.names or any(fnmatchcase(cluster, pattern) for pattern in self.patterns)


Groups = Mapping[str, Group]


def read_groups(written: Any) -> Groups:
    """Return the groups read; SelectionError says where the first fault is."""
    if written is None:
        return {}
    if not isinstance(written, Mapping) or len(written) > MAX_GROUPS:
        raise SelectionError(f"groups must be a mapping of at most {MAX_GROUPS} names", pointer="/groups")
    groups = {_name(name): _group(name, clusters) for name, clusters in written.items()}
    for what, most in (("names", MAX_NAMES), ("patterns", MAX_PATTERNS)):
        count = sum(len(getattr(group, what)) for group in groups.values())
        if count > most:
            raise SelectionError(f"groups have {count} {what}, at most {most} are read", pointer="/groups")
    return groups


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise SelectionError(f"a group is called by 1 to {MAX_NAME} characters", pointer="/groups")
    return name


def _group(name: str, written: Any) -> Group:
    clusters = [written] if isinstance(written, str) else written
    if not isinstance(clusters, list | tuple) or not clusters:
        raise SelectionError(f"group {name}: a list of cluster names is wanted", pointer=f"/groups/{name}")
    for at, cluster in enumerate(clusters):
        if not isinstance(cluster, str) or not 0 < len(cluster) <= MAX_NAME:
            message = f"group {name}: a cluster's name has 1 to {MAX_NAME} characters"
            raise SelectionError(message, pointer=f"/groups/{name}/{at}")
    patterns = tuple(cluster for cluster in clusters if set(cluster) & set("*?["))
    return Group(frozenset(clusters) - set(patterns), patterns)


def unused(groups: Groups, used: Iterable[str]) -> list[str]:
    """Name the groups that no priority is for."""
    return sorted(set(groups) - set(used))


OPTIONS = ("priorities", "groups", "uninformed_sort", "stale_after", "stated")
PRIORITY = ("priority", "group", "steps")
SELECT_MODES = ("first", "last", "random")
UNINFORMED_SORT = "cost_per_node_hour"
MAX_TEXT = 32_768  # characters of YAML, or of all arguments together
MAX_PRIORITIES = 64
MAX_STEPS = 64  # of one priority
MAX_WORK = 5_000_000  # nodes of expressions × clusters of one decision


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step as it was written: `argument` as given, `variable` the one that a calc computes."""

    kind: str  # filter, calc, sort_ascending, sort_descending, select
    argument: str
    expression: Expression | None = None
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Priority:
    """Steps that are tried together; `index` is its place in the list, from 0; `group`: for its clusters only."""

    number: int
    steps: tuple[Instruction, ...]
    index: int
    group: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, read: priorities in the order they are tried."""

    priorities: tuple[Priority, ...]
    uninformed_sort: Expression
    stale_after: float | None
    groups: Groups
    stated: frozenset[str] = frozenset()


def read_options(options: Mapping[str, Any]) -> Settings:
    """Return the options read; SelectionError names the priority, the step and the column of the first fault."""
    written = options.get("priorities")
    if written is None:
        hint = ": give what is below `options` of the configuration" if "scheduler" in options else ""
        raise SelectionError(f"constraint needs priorities in its options{hint}", pointer="/priorities")
    groups = read_groups(options.get("groups"))
    priorities = _read_text(written) if isinstance(written, str) else _read_priorities(written)
    _check_groups(priorities, groups)
    return Settings(
        priorities=priorities,
        uninformed_sort=_read_uninformed_sort(options.get("uninformed_sort", UNINFORMED_SORT)),
        stale_after=_read_stale_after(options.get("stale_after")),
        groups=groups,
        stated=_read_stated(options.get("stated")),
    )


ALWAYS = frozenset({"nodes_free", "matched.nodes"})


def variables_read(settings: Settings) -> frozenset[str]:
    """Name every variable that a decision by these settings may read; free and used amounts are always read."""
    return frozenset(name for expression in _expressions(settings) for name in expression.names) | ALWAYS


def check_work(settings: Settings, clusters: int) -> None:
    """Refuse rules that would take too long: a decision delays all submits."""
    groups = [settings.groups[one.group] for one in settings.priorities if one.group]
    compared = sum(1 + len(group.patterns) for group in groups)
    work = clusters * (compared + sum(expression.size for expression in _expressions(settings)))
    if work > MAX_WORK:
        message = f"priorities need {work} operations for {clusters} clusters; the limit is {MAX_WORK}"
        raise SelectionError(message, pointer="/priorities")


def _expressions(settings: Settings) -> Iterator[Expression]:
    yield settings.uninformed_sort
    yield from (step.expression for one in settings.priorities for step in one.steps if step.expression)


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return ": did you mean ...?" if a known name is near, else nothing."""
    hint = meant(name, known)
    return hint and f": {hint}"


@lru_cache(maxsize=64)
def _read_text(text: str) -> tuple[Priority, ...]:
    return _read_priorities(_load_yaml(text))


def _load_yaml(text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise SelectionError(
            f"priorities have {len(text)} characters, at most {MAX_TEXT} are read", pointer="/priorities"
        )
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = {"line": mark.line + 1, "column": mark.column + 1} if mark else {}
        raise SelectionError(f"priorities are not YAML: {error.problem}", pointer="/priorities", **place) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise SelectionError(f"priorities are not YAML: {type(error).__name__}", pointer="/priorities") from None


def _read_priorities(written: Any) -> tuple[Priority, ...]:
    if not isinstance(written, list | tuple) or not written:
        raise SelectionError("priorities must be a list of {priority, steps}", pointer="/priorities")
    if len(written) > MAX_PRIORITIES:
        raise SelectionError(f"there are more than {MAX_PRIORITIES} priorities", pointer="/priorities")
    results = [_read_priority(item, index) for index, item in enumerate(written)]
    length = sum(len(step.argument) for priority in results for step in priority.steps)
    if length > MAX_TEXT:
        raise SelectionError(f"steps have {length} characters, at most {MAX_TEXT} are read", pointer="/priorities")
    return tuple(sorted(results, key=lambda priority: (priority.number, priority.index)))


def _read_priority(item: Any, index: int) -> Priority:
    pointer = f"/priorities/{index}"
    if not isinstance(item, Mapping):
        raise SelectionError("a priority must be a mapping with priority and steps", pointer=pointer)
    for key in item:
        if key not in PRIORITY:
            hint = nearest(key, PRIORITY)
            raise SelectionError(f"unknown key {str(key)[:60]!r} in priority{hint}", pointer=pointer)
    number = item.get("priority")
    if not isinstance(number, int) or isinstance(number, bool):
        raise SelectionError("priority must be a whole number", pointer=f"{pointer}/priority")
    group = item.get("group", "")
    if not isinstance(group, str):
        raise SelectionError(f"priority {number}: group must be the name of one", pointer=f"{pointer}/group")
    return Priority(number, _read_steps(item.get("steps"), number, pointer), index, group)


def _check_groups(priorities: Iterable[Priority], groups: Groups) -> None:
    for priority in priorities:
        if priority.group and priority.group not in groups:
            hint = nearest(priority.group, groups)
            message = f"priority {priority.number}: group {priority.group:.60} not found{hint}"
            pointer = f"/priorities/{priority.index}/group"
            raise SelectionError(message, pointer=pointer, priority=priority.number)


def _read_steps(steps: Any, number: int, pointer: str) -> tuple[Instruction, ...]:
    pointer = f"{pointer}/steps"
    if not isinstance(steps, list | tuple) or not 0 < len(steps) <= MAX_STEPS:
        raise SelectionError(
            f"priority {number}: steps must be a list of 1 to {MAX_STEPS} steps", pointer=pointer, priority=number
        )
    return tuple(_read_step(step, number, at, f"{pointer}/{at}") for at, step in enumerate(steps))


def _read_step(step: Any, number: int, at: int, pointer: str) -> Instruction:
    where = f"priority {number}, step {at + 1}"
    place: dict[str, Any] = {"pointer": pointer, "priority": number, "step": at + 1}
    if not isinstance(step, Mapping) or len(step) != 1:
        raise SelectionError(f"{where}: each step must have exactly one instruction", **place)
    kind, argument = next(iter(step.items()))
    if kind not in INSTRUCTIONS:
        hint = nearest(kind, INSTRUCTIONS) or f"; there are {', '.join(INSTRUCTIONS)}"
        raise SelectionError(f"{where}: {str(kind)[:60]!r} is not an instruction{hint}", **place)
    if not isinstance(argument, str):
        raise SelectionError(f"{where} ({kind}): the argument must be text", **place)
    try:
        return INSTRUCTIONS[kind](kind, argument)
    except SelectionError as error:
        raise SelectionError(f"{where} ({kind}), {error.message}", column=error.column, **place) from None


def _read_expression(kind: str, argument: str) -> Instruction:
    return Instruction(kind, argument, compile_expression(argument))


def _read_calc(kind: str, argument: str) -> Instruction:
    variable, expression = split_calc(argument)
    return Instruction(kind, argument, expression, variable)


def _read_select(kind: str, argument: str) -> Instruction:
    mode = argument.strip()
    if mode not in SELECT_MODES:
        raise SelectionError(f"column 1: select takes {', '.join(SELECT_MODES)}, not {mode[:60]!r}", column=1)
    return Instruction(kind, mode)


INSTRUCTIONS: Mapping[str, Callable[[str, str], Instruction]] = {
    "filter": _read_expression,
    "calc": _read_calc,
    "sort_ascending": _read_expression,
    "sort_descending": _read_expression,
    "select": _read_select,
}


def _read_uninformed_sort(written: Any) -> Expression:
    if not isinstance(written, str):
        raise SelectionError("uninformed_sort must be an expression", pointer="/uninformed_sort")
    try:
        return compile_expression(written)
    except SelectionError as error:
        message = f"uninformed_sort, {error.message}"
        raise SelectionError(message, pointer="/uninformed_sort", column=error.column) from None


def _read_stale_after(written: Any) -> float | None:
    if written is None:
        return None
    if not isinstance(written, int | float) or isinstance(written, bool) or not 0 < written < float("inf"):
        raise SelectionError("stale_after must be a number of seconds above 0", pointer="/stale_after")
    return written


def _read_stated(written: Any) -> frozenset[str]:
    if written is None:
        return frozenset()
    if not isinstance(written, list | tuple) or not all(isinstance(one, str) for one in written):
        raise SelectionError("stated must be a list of names of variables", pointer="/stated")
    return frozenset(written)


QUEUE = ("waiting_tasks", "running_tasks", "idle_workers")
OUR_NAMES = frozenset(
    [
        *(f"matched.{name}" for name in MATCHED),
        *(f"queue.{name}" for name in QUEUE),
        "state.age",
        *FORECAST,
        *ACCOUNT,
        *MODEL,
    ],
)
BY_SITES = (  # what agents of a resource manager report
    *("cores_free", "cores_taken", "pending_jobs", "pending_core_seconds"),
    *("expected_wait", "expected_wait_low", "expected_wait_high"),
)
USUAL_NAMES = OUR_NAMES | {
    *(UNINFORMED_SORT, "nodes_free", "memory_per_node", "node_memory_gb", "seconds_per_gb"),
    *BY_SITES,
}


def advise(settings: Settings, options: Mapping[str, Any]) -> list[str]:
    """Return the options that may be mistakes, in order of the options and steps."""
    warnings = [
        f"constraint has no option {key!s:.60}{nearest(key, OPTIONS)}" for key in options if key not in OPTIONS
    ]
    used = [priority.group for priority in settings.priorities]
    warnings += [f"no priority is for the group {name:.60}" for name in unused(settings.groups, used)]
    return [*warnings, *_about_priorities(settings.priorities)]


@lru_cache(maxsize=64)  # options are checked at every decision
def _about_priorities(priorities: tuple[Priority, ...]) -> tuple[str, ...]:
    numbers = [priority.number for priority in priorities]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    warnings = [f"duplicate priority {number}: entries are tried in the order listed" for number in twice]
    return (*warnings, *(text for priority in priorities for text in _about_priority(priority)))


@dataclass
class _Before:
    """Return the conditions that the steps before one have made true."""

    known: Known = field(default_factory=dict)
    computed: dict[str, Trend] = field(default_factory=dict)  # variable → how it goes with cost
    sort: Instruction | None = None  # the last one

    def add(self, step: Instruction) -> None:
        """Carry out a step."""
        tree = step.expression.tree if step.expression else None
        if tree and step.kind == "filter":
            self.known = narrowed(tree, self.known, holds=True)
        elif tree and step.variable:
            self.computed[step.variable] = trend(tree, self.known, self.computed)
            self.known = {**self.known, step.variable: bounds(tree, self.known)}
        elif step.kind.startswith("sort"):
            self.sort = step


def _about_priority(priority: Priority) -> Iterator[str]:
    before = _Before()
    for at, step in enumerate(priority.steps):
        where = f"priority {priority.number}, step {at + 1} ({step.kind})"
        for name, warning in _about_names(step, before.computed):
            yield f"{where}, column {_column(step, name)}: {warning}"
        for warning in _about_step(step, before):
            yield f"{where}: {warning}"
        before.add(step)
        if step.kind == "select" and at + 1 < len(priority.steps):
            yield f"{where}: later steps are never reached"
            return
    if priority.steps[-1].kind != "select":
        yield from (f"priority {priority.number}: {text}" for text in _about_end("first", before))


def _about_step(step: Instruction, before: _Before) -> Iterator[str]:
    if step.kind == "select":
        yield from _about_end(step.argument, before)
    elif step.kind == "calc" and step.expression and bounds(step.expression.tree, before.known)[0] < 0:
        below = [name for name in step.expression.names if before.known.get(name, SIZE)[0] < 0]
        yield f"{step.variable} can be negative" + (f", as {below[0]} can" if below else "")
    elif step.kind == "filter" and step.expression:
        yield from _about_filter(step.expression.tree, before.known)


def _about_filter(tree: ast.expr, known: Known) -> Iterator[str]:
    if isinstance(tree, ast.BinOp):
        yield "this expression is a number, so any value except 0 passes, including negative ones"
    elif never(tree, known):
        yield "no cluster can pass this filter after the previous steps, unless a variable is negative"


def _about_end(mode: str, before: _Before) -> Iterator[str]:
    last = before.sort
    if not last or not last.expression:
        return
    if mode == "random":
        yield "random ignores the sort before it: it draws from all that are left"
    rising = trend(last.expression.tree, before.known, before.computed)
    if not rising:  # no cost, or nobody can say
        return
    what = f"{last.kind} of {last.expression.text}"
    dearest_first = (last.kind == "sort_descending") is (rising == RISES)
    if mode == "last" and not dearest_first:
        yield f"{what} followed by last selects the most expensive cluster; use first for the cheapest"
    if mode != "last" and dearest_first:
        other = "sort_ascending" if last.kind == "sort_descending" else "sort_descending"
        takes = "would select" if mode == "random" else "selects"
        yield f"{what} followed by first {takes} the most expensive cluster; use {other} for the cheapest"


# ── names ───────────────────────────────────────────────────────────────────────────────────────────────────


def _about_names(step: Instruction, computed: Collection[str]) -> Iterator[tuple[str, str]]:
    known = USUAL_NAMES | set(computed)
    for name in step.expression.names if step.expression else ():
        if name in known:
            continue
        hint = nearest(name, known)
        if name.startswith(OURS):
            yield name, f"unknown variable {name}{hint}"
        elif hint:
            yield name, f"{name} is not a well-known variable{hint}"


def _column(step: Instruction, name: str) -> int:
    """Return where in the step's argument a variable appears first, from 1."""
    tree = step.expression.tree if step.expression else ast.Constant(None)
    results = [node.col_offset for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return min(results) + 1
