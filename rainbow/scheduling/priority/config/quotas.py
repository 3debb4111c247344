"""Resource quotas: rules, their filters, and the lines of the resource diagram they limit.

    filter    names, wildcards (* ?), sets (@name) and exclusions (! before any of them), separated by commas
    subject   what is asked about: a name, None for "none asked for", or a pattern that stands for any that matches

A filter that is absent matches all. `*` matches whatever was asked for, `!*` only that nothing was. Any exclusion
that covers the subject refuses it; otherwise a positive entry must match, and exclusions alone leave the rest in.

Of every set the first rule that matches counts, and all sets bind together. A rule is one limit for all it matches;
a filter in braces makes it one limit for each name, so its line is named after that name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rainbow.scheduling.priority.config.load_formulas import evaluate, read_formula
from rainbow.scheduling.priority.model import Need

SCOPES = ("users", "projects", "pes", "queues", "hosts")


@dataclass(frozen=True, slots=True)
class Sets:
    """Named sets: of users (members, or "@group" for all of a group) and of workers."""

    users: Mapping[str, Collection[str]] = field(default_factory=dict)
    hosts: Mapping[str, Collection[str]] = field(default_factory=dict)

    def of(self, scope: str) -> Mapping[str, Collection[str]]:
        """Return the sets of a scope."""
        return {"users": self.users, "hosts": self.hosts}.get(scope, {})


def entries(text: str) -> list[str]:
    """Divide a filter into its entries; the braces of an expanded filter are no part of them."""
    return [entry.strip() for entry in text.strip().strip("{}").split(",") if entry.strip()]


def matches(scope: str, text: str, subject: str | None, group: str | None, sets: Sets) -> bool:
    """Return whether a filter is about a subject; `group` is the primary group of a user."""
    included = [entry for entry in entries(text) if not entry.startswith("!")]
    excluded = [entry.lstrip("!") for entry in entries(text) if entry.startswith("!")]
    if subject is None:
        return not included and "*" in excluded
    known = sets.of(scope)
    if any(_covers(entry, subject, group, known) for entry in excluded):
        return False
    return not included or any(_meets(entry, subject, group, known) for entry in included)


def _covers(entry: str, subject: str, group: str | None, known: Mapping[str, Collection[str]]) -> bool:
    """Return whether an excluded entry takes in all that the subject stands for."""
    if not entry.startswith("@"):
        return fnmatchcase(subject, entry)
    if subject.startswith("@"):
        return fnmatchcase(subject, entry)
    if subject == "*":
        return False
    members = [member for name in _named(entry, known) for member in known[name]]
    return any(fnmatchcase(member, subject) for member in members) or _in_group(members, group)


def _meets(entry: str, subject: str, group: str | None, known: Mapping[str, Collection[str]]) -> bool:
    """Return whether an entry and a subject have anything in common."""
    if _overlap(entry, subject):
        return True
    if entry.startswith("@"):
        members = [member for name in _named(entry, known) for member in known[name]]
        return any(_overlap(member, subject) for member in members) or _in_group(members, group)
    if subject.startswith("@"):
        return any(fnmatchcase(member, entry) for name in _named(subject, known) for member in known[name])
    return False


def _named(entry: str, known: Mapping[str, Collection[str]]) -> list[str]:
    return [name for name in known if fnmatchcase(name, entry[1:])]


def _in_group(members: Collection[str], group: str | None) -> bool:
    """Return whether a group is among a set's members; a group that may be any is."""
    return group is not None and any(m.startswith("@") and fnmatchcase(m[1:], group) for m in members)


def _overlap(one: str, other: str) -> bool:
    """Return whether one pattern matches the other read as a name, either way round."""
    return fnmatchcase(one, other) or fnmatchcase(other, one)


def rule_matches(rule: Mapping[str, str], subjects: Mapping[str, str | None], group: str | None, sets: Sets) -> bool:
    """Return whether all filters of a rule match."""
    return all(matches(scope, text, subjects.get(scope), group, sets) for scope, text in rule.items())


Subjects = Mapping[str, str | None]  # {users, projects, pes, queues, hosts} of one slot


@dataclass(slots=True)
class Quotas:
    """The quota sets of one run. `limits` grows by every line that was asked for."""

    sets: list[Mapping[str, Any]]
    names: Sets
    limits: dict[str, dict[str, int]]

    def needs(
        self, subjects: Subjects, group: str | None, amounts: Mapping[str, int], values: Mapping[str, float]
    ) -> list[Need]:
        """Return what one slot with these amounts takes of the quotas; `values` are its worker's."""
        result: list[Need] = []
        for options in self.sets:
            rule = next((r for r in options["limits"] if self._matches(r, subjects, group)), None)
            if rule is not None:
                result.extend(
                    self._of(options["name"], options["limits"].index(rule), rule, subjects, amounts, values)
                )
        return result

    def _matches(self, rule: Mapping[str, Any], subjects: Subjects, group: str | None) -> bool:
        return rule_matches({s: rule[s] for s in SCOPES if rule[s]}, subjects, group, self.names)

    def _of(
        self,
        name: str,
        number: int,
        rule: Mapping[str, Any],
        subjects: Subjects,
        amounts: Mapping[str, int],
        values: Mapping[str, float],
    ) -> list[Need]:
        each = [subjects[scope] or "" for scope in SCOPES if rule[scope].startswith("{")]
        line = "/".join((f"quota {name}", str(number), *each))
        limits = self.limits.setdefault(line, {})
        result = []
        for kind, limit in rule["to"].items():
            amount = 1 if kind == "slots" else amounts.get(kind, 0)
            if amount:
                limits[kind] = limit if isinstance(limit, int) else int(evaluate(read_formula(limit), values))
                result.append(Need(line, kind, amount))
        return result


def read_quotas(settings: Mapping[str, Any]) -> Quotas:
    """Return the enabled quota sets."""
    names = Sets(settings["sets"]["users"], settings["sets"]["hosts"])
    return Quotas([options for options in settings["quotas"] if options["enabled"]], names, {})
