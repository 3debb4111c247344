"""Groups of clusters: names for sets of them, so that a priority can be tried for these only.

groups  {name: [patterns of cluster names]}, where * stands for any text and ? for any character
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rainbow.errors import SelectionError

MAX_GROUPS = 256
MAX_PATTERNS = 1024  # of one group
MAX_PATTERN = 100  # characters, as of a cluster's name

Groups = Mapping[str, tuple[str, ...]]


def read_groups(written: Any) -> Groups:
    """Return the groups read; SelectionError says where the first fault is."""
    if written is None:
        return {}
    if not isinstance(written, Mapping) or len(written) > MAX_GROUPS:
        raise SelectionError(f"groups must be a mapping of at most {MAX_GROUPS} names", pointer="/groups")
    return {_name(name): _patterns(name, patterns) for name, patterns in written.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_PATTERN:
        raise SelectionError(f"a group is called by 1 to {MAX_PATTERN} characters", pointer="/groups")
    return name


def _patterns(name: str, written: Any) -> tuple[str, ...]:
    patterns = [written] if isinstance(written, str) else written
    if not isinstance(patterns, list | tuple) or not 0 < len(patterns) <= MAX_PATTERNS:
        raise SelectionError(f"group {name}: a list of cluster names is wanted", pointer=f"/groups/{name}")
    for at, pattern in enumerate(patterns):
        if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN:
            message = f"group {name}: a cluster's name has 1 to {MAX_PATTERN} characters"
            raise SelectionError(message, pointer=f"/groups/{name}/{at}")
    return tuple(patterns)


def belongs(cluster: str, patterns: Sequence[str]) -> bool:
    """Tell whether a cluster is of a group.

    >>> belongs("east-2", ("alpha", "east-*")), belongs("west-1", ("alpha", "east-*"))
    (True, False)
    """
    return any(fnmatchcase(cluster, pattern) for pattern in patterns)


def unused(groups: Groups, used: Iterable[str]) -> list[str]:
    """Name the groups that no priority is for."""
    return sorted(set(groups) - set(used))
