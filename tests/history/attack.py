"""The judge is put to the test: Rainbow is broken on purpose, one place at a time, and must be found out.

`python -m tests.history.attack` copies the tree, breaks the copy, records a history of it and says which rules are
broken. It ends 0 if all breaks but one are found, and 2 where a break does not apply any more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.history.places import ROOT

SECONDS, SEED = 20, 7
TRIES = 2  # histories of a break: what happens in them depends on time


@dataclass(frozen=True)
class Break:
    """One text in place of another, and the nemeses that the history has."""

    name: str
    file: str
    old: str
    new: str
    nemeses: str = "cut"


RARELY = "__import__('random').random() <"
BREAKS = (
    Break(
        "one write in twenty is answered and not committed",
        "rainbow/store/engine.py",
        "part.result = part.do(connection)\n        return",
        f"part.result = part.do(connection)\n        if {RARELY} 0.05:\n"
        "            connection.exec_driver_sql('ROLLBACK')\n"
        "            connection.exec_driver_sql('BEGIN IMMEDIATE')\n"
        "            pending = pending_of(connection)\n"
        "            pending and pending.events.clear()\n        return",
    ),
    Break(
        "one event in thirty is dropped",
        "rainbow/store/events.py",
        "for each in facts]\n    if (pending",
        f"for each in facts if not {RARELY} 0.03]\n    if (pending",
    ),
    Break(
        "a silent agent's tasks are given to others before its lease ends",
        "rainbow/service/agents/liveness.py",
        "most = service.settings.lease + service.settings.grace\n    silences",
        "most = 0.2\n    silences",
        "kill,pause,cut",
    ),
    Break(
        "a retry is not counted",
        "rainbow/state_machine.py",
        "used = 1 if task.state in ENDED else 0",
        f"used = 1 if task.state in ENDED and {RARELY} 0.3 else 0",
    ),
    Break(
        "an Idempotency-Key is not looked up",
        "rainbow/service/placement/submission.py",
        "json.dumps([submission.key, sorted(submission.credentials)])",
        "json.dumps([submission.key, __import__('time').time_ns()])",
    ),
    Break(
        "a cancel is answered and not done",
        "rainbow/service/jobs/verbs.py",
        "return record.state in PENDING and end(",
        f"return record.state in PENDING and not {RARELY} 0.5 and end(",
        "",
    ),
    Break(
        "a cluster's state is answered from two seconds ago",
        "rainbow/service/clusters/registration.py",
        "    values = dict(result.values) if result else {}",
        "    import time\n    old = vars(service).setdefault('old', {})\n"
        "    if name not in old or old[name][0] < time.monotonic() - 2:\n"
        "        old[name] = (time.monotonic(), dict(result.values) if result else {})\n    values = old[name][1]",
        "",
    ),
    Break(
        "a revoked token opens",
        "rainbow/store/credentials.py",
        "    credentials.c.revoked_at.is_(None),\n    sa.or_",
        "    sa.or_",
        "",
    ),
    Break(
        "usage is charged twice",
        "rainbow/store/accounts/charges.py",
        "_note(connection, runs, now)\n",
        "_note(connection, runs * 2, now)\n",
        "",
    ),
    Break(
        "the space of some tasks is not given back",
        "rainbow/matching/workers/occupancy.py",
        "        pieces = self.held.pop(key)\n        for _, worker, part in pieces:",
        f"        pieces = self.held.pop(key)\n        for _, worker, part in () if {RARELY} 0.2 else pieces:",
        "",
    ),
    Break(
        "a follower that comes back begins one event late",
        "rainbow/api/views/events.py",
        "        return numbers[0]",
        "        return numbers[0] + 1",
    ),
    Break(
        "one registration in three stores another secret",
        "rainbow/service/clusters/registration.py",
        "minted(value, kind,",
        f"minted(value + ('x' if name.startswith('register') and {RARELY} 0.3 else ''), kind,",
        "",
    ),
)


def run_broken(one: Break, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a copy of the tree that has this break; exit code 2 where it does not apply any more."""
    with tempfile.TemporaryDirectory(prefix="rainbow-broken-") as made:
        copy = Path(made)
        for folder in ("rainbow", "tests"):
            shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / one.file
        text = file.read_text()
        if one.old not in text:
            return subprocess.CompletedProcess(command, 2, f"the text is not in {one.file}", "")
        file.write_text(text.replace(one.old, one.new, 1))
        environment = {**os.environ, "PYTHONPATH": made}
        called = [sys.executable, "-m", *command]
        return subprocess.run(called, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def broken_by(one: Break) -> tuple[int, list[str], str]:
    """Record a history of a copy that has this break; return the judge's exit code, the rules it names, and all."""
    options = ["--store", "sqlite", "--seconds", str(SECONDS), "--seed", str(SEED), "--nemesis", one.nemeses]
    done = run_broken(one, "tests.history.record", *options)
    rules = [row.split()[1] for row in done.stdout.splitlines() if row.startswith("broken ")]
    return done.returncode, rules, done.stdout + done.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    """Break the tree in each place in turn."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.attack", description=main.__doc__)
    parser.add_argument("--only", default="", help="breaks whose name has this")
    only = parser.parse_args(arguments).only
    chosen = [one for one in BREAKS if only in one.name]
    missed, odd = 0, 0
    for one in chosen:
        for _ in range(TRIES):
            code, rules, text = broken_by(one)
            if rules or code == 2:
                break
        message = ", ".join(rules) or ("not found" if code == 0 else text.strip()[-1_000:])
        print(f"{one.name}: {message}", flush=True)
        missed, odd = missed + (not rules), odd + (code == 2 and not rules)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 2 if odd else int(missed > 1)


if __name__ == "__main__":
    sys.exit(main())
