"""What became of each jobspec, and where that differs from what was expected. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One jobspec: which clusters match it, and either the job it became or why every cluster refused it."""

    file: str
    matched: Sequence[str]
    job: Document | None = None  # as the server shows it at the end
    decision: Document = field(default_factory=dict)
    refusals: Sequence[Document] = ()
    fault: str = ""  # why it was neither placed nor refused

    @property
    def exit_codes(self) -> list[int | None]:
        """The exit codes of the job's tasks."""
        return [task["exit_code"] for task in self.job["tasks"]] if self.job else []


def differences(outcomes: Sequence[Outcome], expected: Mapping[str, Sequence[str]]) -> list[str]:
    """Say what is not as expected, a line each."""
    seen = {outcome.file for outcome in outcomes}
    lines = [f"{file} is expected, and there is no such jobspec" for file in sorted(set(expected) - seen)]
    for outcome in outcomes:
        if outcome.file not in expected:
            lines.append(f"{outcome.file}: nobody says what is expected of it")
        else:
            lines += [f"{outcome.file}: {line}" for line in _differs(outcome, sorted(expected[outcome.file]))]
    return lines


def _differs(outcome: Outcome, wanted: Sequence[str]) -> Iterator[str]:
    if outcome.fault:
        yield outcome.fault
    if sorted(outcome.matched) != wanted:
        yield f"matches {', '.join(outcome.matched) or 'nothing'}, expected {', '.join(wanted) or 'nothing'}"
    if outcome.job is None:
        if wanted:
            yield "no job came of it"
        return
    if outcome.job["cluster"] not in wanted:
        yield f"went to {outcome.job['cluster']}"
    if outcome.job["state"] != "COMPLETED" or set(outcome.exit_codes) != {0}:
        yield f"is {outcome.job['state']}, exit codes {outcome.exit_codes}"
