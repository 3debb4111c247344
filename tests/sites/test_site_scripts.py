"""A yes is a job that the site takes: 250 scripts on four sites, as real controllers of Slurm answered them."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from rainbow.errors import RainbowError
from rainbow.graph import read_cluster
from rainbow.graph.sources.slurm import read_slurm
from rainbow.jobspec.sbatch import read_call
from rainbow.matching import match
from tests.sites.sbatch_reading import plain, read_by_sbatch, written
from tests.sites.site_scripts import CASES, SITES, clusters, controllers, judge, read, recorded
from tests.support import services


def test_recorded_answers_are_told_as_slurm_tells_them() -> None:
    sites = clusters()
    kinds = Counter(row.kind for name, script, answers in recorded() for row in judge(name, script, answers, sites))
    total = sum(kinds.values())
    assert total == 1000
    assert kinds["wrong yes"] <= 0.005 * total
    assert kinds["wrong no"] <= 0.01 * total
    assert kinds["undecided"] <= 0.03 * total
    assert not kinds["refused, Slurm takes it"]


def test_graphs_without_words_never_say_yes_to_a_word_that_they_do_not_know() -> None:
    bare = {}
    for site in SITES:
        document = read_slurm((CASES / "sites" / f"{site}.txt").read_text())
        del document["graph"]["metadata"]
        for vertex in document["graph"]["nodes"].values():
            for word in ("model", "properties", "threads"):
                vertex["metadata"].pop(word, None)
        bare[site] = read_cluster(document, site)
    for name, script, _ in recorded():
        request = read(name, script)
        if isinstance(request, RainbowError) or not (request.queues or request.licenses):
            continue
        for verdict in match(request, list(bare.values())):
            assert not verdict.matched
            if verdict.matched is None and verdict.reason:
                named = [*request.queues[:1], *request.licenses]
                assert any(word in verdict.reason.text for word in named)


def test_no_job_demands_more_gpus_than_its_script_asks() -> None:
    sites = list(clusters().values())
    for name, script, _ in recorded():
        request = read(name, script)
        options = dict(text[10:].partition("=")[::2] for text in script.splitlines() if text.startswith("#SBATCH --"))
        if isinstance(request, RainbowError) or set(options) & {
            "ntasks-per-gpu",
            "gpus-per-task",
            "gpus-per-node",
            "exclusive",
        }:
            continue
        counts = [part for key in ("gres", "gpus") for part in options.get(key, "").split(",") if "nvme" not in part]
        requested = sum(int(part.rpartition(":")[2] or 0) for part in counts if part and "1g." not in part)
        for verdict in match(request, sites):
            if verdict.matched and "gpus" in options:
                assert verdict.totals.get("gpus", 0) == requested, (name, verdict)
            elif verdict.matched:
                assert verdict.totals.get("gpus", 0) == requested * max(1, verdict.totals.get("nodes", 1)), (
                    name,
                    verdict,
                )


@pytest.mark.skipif(os.getuid() != 0, reason="a controller of Slurm is started as root")
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.soak)])
def test_scripts_are_read_as_sbatch_reads_them_option_by_option(count: int) -> None:
    services.require("Slurm")
    rng, judged = random.Random(count), 0
    with controllers(("oak",)) as confs:
        for _ in range(count):
            text = written(rng)
            theirs = read_by_sbatch(text, confs["oak"])
            if theirs is None:  # what contradicts itself sbatch refuses when it is read, Rainbow when it is made
                continue
            judged += 1
            assert plain(read_call(text).options) == plain(theirs), text
    assert judged > 0.8 * count
