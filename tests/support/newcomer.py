"""The first hours of a newcomer, timed: `python -m tests.support.newcomer [JOURNEY ...]` prints the seconds of each.

Each journey types the blocks of one page into a fresh clone with a fresh virtual environment. What the page takes for
granted (a server, a cluster, a Slurm) is there before its time begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.pages import commands, environment
from tests.support.slurm import Slurm, slurm

ROOT = Path(__file__).parents[2]
PATIENCE = 600.0
SERVED = """
rainbow serve > server.log 2>&1 &
until [ -s rainbow-registration.secret ]; do sleep 0.2; done
export RAINBOW_CREDENTIALS=$PWD/credentials.json RAINBOW_REGISTRATION_SECRET=$(cat rainbow-registration.secret)
"""
WORKERS = 10
OAK = {
    "graph": {
        "nodes": {
            "c": {"metadata": {"type": "cluster", "name": "oak"}},
            "n": {"metadata": {"type": "node", "name": "n", "count": WORKERS}},
            "k": {"metadata": {"type": "core", "name": "core"}},
        },
        "edges": [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}],
    }
}
JOINED = """
rainbow cluster register oak.json --name oak --save credentials.json
rainbow scheduler set oak --unit worker
rainbow agent --cluster oak --quiet &
until [ "$(rainbow worker list oak | grep -c READY)" = 10 ]; do sleep 0.2; done
"""


@dataclass(frozen=True)
class Journey:
    """What is there before, what the page says, and what shows that the reader has arrived."""

    page: str
    before: str
    typed: Callable[[str], str]
    arrived: str  # in what was printed
    limit: float = PATIENCE  # seconds


def typed(text: str, *, until: str = "") -> str:
    """Return the commands of a page's blocks up to the one that begins so."""
    results = [command for command, _ in commands(text)]
    end = next((k for k, command in enumerate(results) if until and command.startswith(until)), len(results))
    return "\n".join(results[:end])


def first_job(page: str) -> str:
    """Type the README up to the first job's answer."""
    return typed(page.partition("## Use it from Python")[0], until="kill")


def script_to_output(page: str) -> str:
    """Submit the day's script, and read what its failed element wrote."""
    said = typed(page, until="rainbow jobs")
    said = said.replace(
        "rainbow sbatch sweep.sh", "rainbow sbatch sweep.sh | tee submitted; sweep=$(awk '{print $4}' submitted)"
    )
    said = re.sub(r"\b[0-9a-f]{24}\b", "$sweep", said)
    return f"{said}\nuntil rainbow job logs --task 2 $sweep | tee out | grep input; do sleep 0.2; done"


def joined(page: str) -> str:
    """Start the agent on Slurm, and run a job through it."""
    said = typed(page, until="squeue")
    return said.replace(
        " shared/rainbow &", " shared/rainbow > agent.log 2>&1 &\nuntil grep started agent.log; do sleep 0.2; done"
    )


def shares(page: str) -> str:
    """Set the shares, then let both teams ask for more than there is."""
    many = 'LOGNAME={} rainbow sbatch --array=0-99 --ntasks=1 --wrap "sleep 5"'
    query = "\n".join(many.format(who) for who in ("b-bob", "a-ann"))
    shown = "rainbow scheduler show oak | tee shown | grep -E '^team-a +70 +7 ' && grep -E '^team-b +30 +3 ' shown"
    return f"{typed(page)}\n{query}\nuntil {shown}; do sleep 0.5; done"


def notebook(page: str) -> str:
    """Install what the notebook names, and run it."""
    [needed] = re.findall(r"pip install '(rainbow-hpc\[\w+\])' jupyter", page)
    extra = needed.removeprefix("rainbow-hpc")
    run = "jupyter execute --inplace docs/tutorial.ipynb && echo EXECUTED"
    return f"pip install -q '.{extra}' nbclient ipykernel\n{run}"


JOURNEYS: Mapping[str, Journey] = {
    "README to first job": Journey("README.md", "", first_job, r"task-0 +COMPLETED +0 ", 300),
    "script to output": Journey(
        "docs/day-of-a-slurm-user.md", SERVED + JOINED, script_to_output, "no such file: input.2"
    ),
    "Slurm cluster joined": Journey("docs/slurm.md", SERVED, joined, "n0001"),
    "team A 70 %": Journey("docs/load-based.md", SERVED + JOINED, shares, r"team-b +30 +3 "),
    "NetworkX notebook": Journey("docs/tutorial.ipynb", "", notebook, "EXECUTED"),
}


@contextlib.contextmanager
def cloned() -> Iterator[Path]:
    """Yield a fresh clone, with an empty virtual environment beside it for every journey but the README's own."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", folder / "clone"], check=True)
        (folder / "clone" / "oak.json").write_text(json.dumps(OAK))
        yield folder


def walk(journey: Journey, site: Slurm | None = None) -> tuple[float, str]:
    """Return the seconds that a journey took from the first word of its page, and what was printed."""
    with cloned() as folder:
        installed = "" if journey.page == "README.md" else "python3 -m venv .venv && . .venv/bin/activate\n"
        installed += "pip install -q .\n" if journey.before else ""
        page = (ROOT / journey.page).read_text()
        text = json.loads(page)["cells"] if journey.page.endswith("ipynb") else []
        page = "\n".join("".join(cell["source"]) for cell in text) or page
        script = f"{installed}{journey.before}\ndate +BEGIN=%s.%N\n{journey.typed(page)}\ndate +END=%s.%N\n"
        options = environment(folder) | ({"SLURM_CONF": str(site.conf)} if site else {})
        options.pop("PYTHONPATH")
        printed = _in_a_shell(folder / "clone", script, options)
    begin, end = (re.search(rf"^{word}=([\d.]+)$", printed, re.M) for word in ("BEGIN", "END"))
    if not (begin and end and re.search(journey.arrived, printed)):
        raise AssertionError(f"{journey.page} did not lead to {journey.arrived!r}:\n{printed[-4000:]}")
    return float(end[1]) - float(begin[1]), printed


def _in_a_shell(folder: Path, script: str, options: Mapping[str, str]) -> str:
    with (folder / "printed").open("w+") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=options, stdout=out, stderr=out, start_new_session=True
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return (folder / "printed").read_text()


def main(names: list[str]) -> None:
    """Walk the journeys named, or all, and print their seconds."""
    for name in names or JOURNEYS:
        journey, began = JOURNEYS[name], time.monotonic()
        with slurm() if "Slurm" in name else contextlib.nullcontext() as site:
            seconds, _ = walk(journey, site)
        whole = time.monotonic() - began
        print(f"{name:<24}{seconds:>7.1f} s of {journey.limit:.0f}, {whole:.0f} s with the preparations", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
