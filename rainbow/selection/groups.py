"""Groups of clusters: names for sets of them, so that a priority can be tried for these only.

groups  {name: [names of clusters]}, where * stands for any text, ? for any character, [ab] for one of these
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rainbow.errors import SelectionError

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
        """Tell whether a cluster is of the group.

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
