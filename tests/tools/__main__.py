"""Run every tool over two local clusters, and print a line each: version, seconds, calls by command.

The tools have an environment of their own, build/tools, made with pip once. One that cannot be had is skipped, and
counted. A call that ends with 0 and writes to standard error fails the tool: some read both streams as one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from rainbow.cli import session
from rainbow.cli.slurm.shims import COMMANDS, FILE, text_of
from rainbow.client import Client
from tests.conftest import REGISTRATION
from tests.support.live import agent_of, rainbow_at
from tests.tools.scenarios import PACKAGES, TOOLS

ROOT = Path(__file__).parents[2]
VENV = ROOT / "build" / "tools"
WRAPPER = """#!/bin/bash
echo "{name} $*" >> {log}/calls
[ {name} = srun ] && exec {file} "$@"  # what a step writes is its own
{file} "$@" 2> {log}/err.$$
code=$?
cat {log}/err.$$ >&2
[ $code = 0 ] && [ -s {log}/err.$$ ] && cat {log}/err.$$ >> {log}/noise
exit $code
"""


def graph(nodes: int, cores: int) -> dict[str, object]:
    """Return a cluster whose nodes have memory in MB: tools ask for it."""
    vertices: dict[str, dict[str, object]] = {"c0": {"metadata": {"type": "cluster", "name": "c0"}}}
    edges: list[dict[str, str]] = []
    for k in range(nodes):
        vertices[f"n{k}"] = {"metadata": {"type": "node", "name": f"n{k}"}}
        edges.append({"source": "c0", "target": f"n{k}", "relation": "contains"})
        for place in range(cores):
            vertices[f"n{k}c{place}"] = {"metadata": {"type": "core", "name": f"core{place}"}}
            edges.append({"source": f"n{k}", "target": f"n{k}c{place}", "relation": "contains"})
        vertices[f"n{k}m"] = {"metadata": {"type": "memory", "name": "memory0", "size": 8_000, "unit": "MB"}}
        edges.append({"source": f"n{k}", "target": f"n{k}m", "relation": "contains"})
    return {"graph": {"nodes": vertices, "edges": edges}}


def install() -> None:
    """Make the environment of the tools; packages that cannot be had are left out."""
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    for package in PACKAGES:
        if version(package) is None:
            words = [VENV / "bin" / "pip", "install", "-q", "--disable-pip-version-check", package]
            subprocess.run(words, check=False)


def version(package: str) -> str | None:
    """Return the version that is installed."""
    text = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([VENV / "bin" / "python", "-c", text], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def commands(folder: Path, log: Path, url: str, saved: Path) -> None:
    """Write the commands, each behind a script that notes its calls and what it writes to standard error."""
    folder.mkdir()
    inner = folder / "inner"
    inner.mkdir()
    (inner / FILE).write_text(text_of(url, str(saved)))
    (inner / FILE).chmod(0o755)
    for name in COMMANDS:
        (inner / name).symlink_to(FILE)
        script = folder / name
        script.write_text(WRAPPER.format(name=name, log=log, file=inner / name))
        script.chmod(0o755)


def run_tool(name: str, program: str, seconds: float, folder: Path, url: str, saved: Path) -> tuple[str, bool]:
    """Run one tool; return what is told of it, and whether it did what it should."""
    work = folder / name.replace(" ", "-").replace(",", "")
    work.mkdir()
    log = work / "log"
    log.mkdir()
    commands(work / "bin", log, url, saved)
    path = f"{work / 'bin'}:{VENV / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(work), "USER": "root", "LOGNAME": "root", "LANG": "C.UTF-8"}
    began = time.monotonic()
    with (work / "written").open("w") as written:
        words = [VENV / "bin" / "python", "-c", program]
        try:
            code = subprocess.run(
                words, cwd=work, env=environment, stdout=written, stderr=written, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    calls = Counter(line.split()[0] for line in _lines(log / "calls"))
    noise = _lines(log / "noise")
    message = ", ".join(f"{many} {command}" for command, many in sorted(calls.items()))
    text = f"{time.monotonic() - began:.0f} s, {message or 'no call'}"
    good = code == 0 and not noise and bool(calls)
    return text + ("" if good else f"; exit code {code}, see {work}/written; on standard error: {noise[:3]}"), good


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> int:
    """Run the tools that are named, or all."""
    named = sys.argv[1:]
    if not os.environ.get("RAINBOW_TOOLS_INSTALLED"):
        install()
    folder = Path(tempfile.mkdtemp(prefix="rainbow-tools-"))
    failed, skipped = 0, 0
    with ExitStack() as stack:
        (folder / "server").mkdir()
        url = stack.enter_context(rainbow_at(folder / "server"))
        client = stack.enter_context(Client(url, REGISTRATION))
        saved = folder / "credentials.json"
        for cluster in ("oak", "elm"):
            registration = client.register_cluster(cluster, graph(2, 8))
            session.save(saved, url, cluster, registration["token"], registration["secret"])
            stack.enter_context(agent_of(url, cluster, registration["secret"]))
        for name, package, program, seconds in TOOLS:
            if named and not any(name.startswith(one) for one in named):
                continue
            if (known := version(package)) is None:
                skipped += 1
                print(f"{name:<30} skipped: {package} cannot be installed", flush=True)
                continue
            text, good = run_tool(name, program, seconds, folder, url, saved)
            failed += not good
            print(f"{name:<30} {'ok    ' if good else 'FAILED'} {known}: {text}", flush=True)
    print(f"{failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
