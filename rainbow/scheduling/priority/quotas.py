"""Resource quota sets: how much jobs may use together, as lines of the resource diagram.

Of every set the first rule that matches counts, and all sets bind together. A rule is one limit for all it matches;
a filter in braces makes it one limit for each name, so its line is named after that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rainbow.scheduling.priority.formula import evaluate, read_formula
from rainbow.scheduling.priority.model import Need
from rainbow.scheduling.priority.quota_filter import SCOPES, Sets, rule_matches

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
        found: list[Need] = []
        for given in self.sets:
            rule = next((r for r in given["limits"] if self._matches(r, subjects, group)), None)
            if rule is not None:
                found.extend(self._of(given["name"], given["limits"].index(rule), rule, subjects, amounts, values))
        return found

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
        found = []
        for kind, limit in rule["to"].items():
            amount = 1 if kind == "slots" else amounts.get(kind, 0)
            if amount:
                limits[kind] = limit if isinstance(limit, int) else int(evaluate(read_formula(limit), values))
                found.append(Need(line, kind, amount))
        return found


def read_quotas(settings: Mapping[str, Any]) -> Quotas:
    """Return the enabled quota sets."""
    names = Sets(settings["sets"]["users"], settings["sets"]["hosts"])
    return Quotas([given for given in settings["quotas"] if given["enabled"]], names, {})
