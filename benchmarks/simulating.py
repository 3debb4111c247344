"""How fast recorded jobs are simulated: `python -m benchmarks.simulating FOLDER` with the traces in a folder.

The rival is the target of jobs a second on one processor. The grid is LCG-2005 over its sites, each job matched with
all of them and sent to one drawn at random.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from benchmarks.grid import cluster_of, read_grid, sizes
from rainbow.simulation import Arrival, Governed, World, compare, machine, read_trace, simulate

TRACES = Path(__file__).parents[2] / "shared" / "traces"
F2 = {"": Governed("priority", {"order": "f2"})}


def speed(label: str, world: World, arrivals: list[Arrival], target: int) -> None:
    """Print how many jobs a second are simulated."""
    begin = time.process_time()
    outcome = simulate(world, arrivals)
    spent = time.process_time() - begin
    rate = len(arrivals) / spent
    print(f"{label:<40}{len(arrivals):>7} jobs {outcome.plans:>7} plans {rate:>8,.0f} jobs/s, target {target:,}")


def grid(folder: Path, most: int) -> tuple[World, list[Arrival]]:
    """Return the sites of LCG-2005, and its first jobs."""
    every = read_grid(folder / "LCG-2005.swf.gz")
    sites = [cluster_of(name, cores) for name, cores in sizes(every).items()]
    jobs = [Arrival(one.job.id, one.job.submit, 1, one.job.runtime, one.job.walltime) for one in every[:most]]
    return World(sites), jobs


def comparing(folder: Path) -> None:
    """Print what it costs to compare two policies over 10 windows of 1,024 jobs, in two processes."""
    jobs = list(islice(read_trace(folder / "lublin_256.swf.gz"), 9_990))
    windows = [jobs[k : k + 999] for k in range(0, len(jobs), 999)]
    begin = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        result = compare(World([machine(256)]), World([machine(256)], F2), windows, each=pool.map)
    spent, ratio = time.perf_counter() - begin, result.of("slowdown")
    shown = f"slowdown {ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    print(f"{'policy simulate, f2, 10 windows of 999':<40}{spent:>7.1f} s of two processes, target 15; {shown}")


def simulating(folder: Path = TRACES) -> None:
    """Print every speed; nothing where there are no traces."""
    if not folder.is_dir():
        print(f"simulations: no traces in {folder}")
        return
    lublin = list(islice(read_trace(folder / "lublin_256.swf.gz"), 1_000))
    nasa = list(islice(read_trace(folder / "NASA-iPSC-1993-3.1-cln.swf.gz"), 4_000))
    speed("lublin_256, easy", World([machine(256)]), lublin, 2_000)
    speed("lublin_256, easy with f2", World([machine(256)], F2), lublin, 2_000)
    speed("NASA, easy", World([machine(128)]), nasa, 5_000)
    speed("LCG-2005, 170 sites, random", *grid(folder, 4_000), 2_000)
    comparing(folder)


if __name__ == "__main__":
    simulating(Path(sys.argv[1]) if len(sys.argv) > 1 else TRACES)
