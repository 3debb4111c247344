"""Tasks per second from submit to end through every executor that is there, beside the same executor without us.

Alone is: processes one after the other for `local`, `Client.map` for Dask, PSI/J's own jobs for Slurm, submitted by
as many threads as we use, on four emulated nodes. Dask and PSI/J are extras.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from rainbow.agent import Agent, open_executor
from rainbow.agent.executors.local import allowed
from rainbow.agent.journal import Journal
from rainbow.client import Client
from tests.support import services
from tests.support.slurm import slurm

SECRET = "rbr_of-the-benchmark"  # noqa: S105 - of a server that lives for seconds
NODES = {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "count": 256}}}
CORES = {"core": {"metadata": {"type": "core", "count": 8}}}
EDGES = [{"source": "c", "target": "n"}, {"source": "n", "target": "core"}]
GRAPH: dict[str, Any] = {"graph": {"nodes": {**NODES, **CORES}, "edges": EDGES}}
SINGLE = 100  # tasks one after the other, for latency


def running_tasks() -> None:
    """Print tasks per second, CPU time of all processes for a task, and latencies."""
    head = ("executor", "tasks", "alone /s", "with us /s", "ratio", "CPU alone", "CPU with us", "started p50", "p99")
    print("".join(f"{word:>13}" for word in head))
    with ExitStack() as stack:
        for name, count, alone in _there(stack):
            with site(name) as user:
                user.wait(user.submit(bag(1))["id"], 60)  # warm: Dask's workers import us once
                ours, our_cpu = _measured(lambda user=user, count=count: _run_bag(user, count))
                latencies = sorted(_latency(user) for _ in range(SINGLE if name == "local" else SINGLE // 4))
            theirs, their_cpu = _measured(lambda alone=alone, count=count: alone(count))
            p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
            rates = f"{count / theirs:>13.1f}{count / ours:>13.1f}{theirs / ours:>13.2f}"
            counted = name != "psij:slurm"  # what Slurm starts are no children of ours
            cpu = "".join(
                f"{each / count * 1e3:>10.1f} ms" if counted else f"{'-':>13}" for each in (their_cpu, our_cpu)
            )
            ms = f"{p50 * 1e3:>10.0f} ms{p99 * 1e3:>10.0f} ms"
            print(f"{name.partition(':tcp')[0]:>13}{count:>13}{rates}{cpu}{ms}", flush=True)


def _measured(work: Callable[[], object]) -> tuple[float, float]:
    """Return how many seconds something takes, and how many of CPU in this process and all below it."""
    began, cpu = time.perf_counter(), _cpu()
    work()
    return time.perf_counter() - began, _cpu() - cpu


def _cpu() -> float:
    here = psutil.Process()
    total = 0.0
    for process in [here, *here.children(recursive=True)]:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # its own, and that of children it has waited for
    return total


def _there(stack: ExitStack) -> Iterator[tuple[str, int, Callable[[int], None]]]:
    yield "local", 1_000, _processes
    if importlib.util.find_spec("distributed"):
        from distributed import LocalCluster

        cluster = stack.enter_context(
            LocalCluster(n_workers=2, threads_per_worker=32, processes=True, dashboard_address=None)
        )
        yield f"dask:{cluster.scheduler_address}", 500, lambda count: _dask(cluster.scheduler_address, count)
    else:
        print("          dask  is not installed")
    if services.missing("Slurm") or not importlib.util.find_spec("psij"):
        print("    psij:slurm  there is no Slurm, or no PSI/J")
        return
    os.environ["SLURM_CONF"] = str(stack.enter_context(slurm()).conf)
    yield "psij:slurm", 200, _psij


@contextmanager
def site(executor: str) -> Iterator[Client]:
    """Give a user of a server with one cluster and an agent of this executor."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        where = ["--port", str(port), "--database", f"{folder}/rainbow.db"]
        environment = {**os.environ, "RAINBOW_REGISTRATION_SECRET": SECRET}
        command = [sys.executable, "-m", "rainbow", "serve", *where]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield from _with_agent(f"http://127.0.0.1:{port}", executor, Path(folder))
        finally:
            server.terminate()
            server.wait()


def _with_agent(url: str, executor: str, folder: Path) -> Iterator[Client]:
    while not Client(url).ready():
        time.sleep(0.1)
    # a worker serves one task at a time, and Slurm has four nodes: it is left to schedule by itself
    policy = {"name": "delegate" if executor == "psij:slurm" else "load_based"}
    with Client(url, SECRET) as registering:
        registration = registering.register_cluster("oak", GRAPH, policy=policy)
    opened = open_executor(executor, allowed(os.environ), folder)
    agent = Agent(
        Client(url, registration["secret"]), "oak", opened, Journal(folder), max_tasks=256, say=lambda _: None, wait=1
    )
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield Client(url, registration["token"])
    finally:
        agent.stop()
        thread.join()


def bag(count: int) -> dict[str, Any]:
    """Return a jobspec of so many independent tasks."""
    task = {"command": ["true"], "resources": "w", "replicas": count}
    return {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [task]}


def _run_bag(user: Client, count: int) -> None:
    submitted = user.submit(bag(count))["id"]
    while (job := user.jobs(limit=1)["jobs"][0])["state"] in ("WAITING", "RUNNING"):  # without its thousand tasks
        time.sleep(0.1)
    assert (job["id"], job["state"]) == (submitted, "COMPLETED")


def _latency(user: Client) -> float:
    """Return the seconds from submit to the server's knowing that the task has started."""
    job = user.wait(user.submit(bag(1))["id"], 60, every=0.05)
    began, submitted = job["tasks"][0]["started_at"], job["submitted_at"]
    return (datetime.fromisoformat(began) - datetime.fromisoformat(submitted)).total_seconds()


def _processes(count: int) -> None:
    for _ in range(count):
        subprocess.run(["true"], check=True)


def _dask(address: str, count: int) -> None:
    from distributed import Client as Dask

    with Dask(address, set_as_default=False) as client:
        client.gather(client.map(lambda _: subprocess.run(["true"], check=True).returncode, range(count), pure=False))


def _psij(count: int) -> None:
    import psij
    from psij.executors.batch.slurm import SlurmExecutorConfig

    with tempfile.TemporaryDirectory() as folder:
        config = SlurmExecutorConfig(Path(folder), Path(folder), 1, 1)
        executor = psij.JobExecutor.get_instance("slurm", config=config)
        jobs = [psij.Job(psij.JobSpec(executable="true", launcher="single")) for _ in range(count)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(executor.submit, jobs))
        for job in jobs:
            job.wait()
