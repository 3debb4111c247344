"""What plug-ins import from modules that have moved is found there still, and is the same."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rainbow
from rainbow.agent import Run
from rainbow.agent.executors.shared_folder import SharedFolder, key_of
from rainbow.former_modules import FORMER
from rainbow.selection import select, selectors

PUBLIC = {
    "rainbow.agent.executor": ["Executor", "executors", "open_executor", "Run", "Ended"],
    "rainbow.agent.loop": ["Agent"],
    "rainbow.agent.runs": ["Ended", "Result", "Run", "RunId"],
    "rainbow.client.calls": ["Problem"],
    "rainbow.client.verbs": ["Client"],
    "rainbow.graph.limits": ["LIMITS", "Limits"],
    "rainbow.graph.order": ["natural"],
    "rainbow.graph.reading": ["read_cluster", "hang_subsystem"],
    "rainbow.graph.writing": ["write_jgf"],
    "rainbow.jobs": ["Task", "TaskState", "WorkerState"],
    "rainbow.jobspec.command": ["jobspec_of"],
    "rainbow.jobspec.reading": ["parse_jobspec"],
    "rainbow.jobspec.text": ["Limits"],
    "rainbow.matching.index": ["Index"],
    "rainbow.matching.needs": ["Matcher", "matchers"],
    "rainbow.matching.verdict": ["Backend", "Reason", "Take", "Verdict"],
    "rainbow.matching.walk": ["Walk"],
    "rainbow.scheduling.load_based": ["LoadBased"],
    "rainbow.scheduling.policy": ["Plan", "Policy", "Start", "View", "Wait", "GangView", "JobView", "WorkerView"],
    "rainbow.selection.random": ["RandomSelector"],
    "rainbow.service.service": ["Service", "open_service"],
    "rainbow.service.settings": ["Settings"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_a_former_module_has_its_public_names(module):
    found = import_module(module)
    for name in PUBLIC[module]:
        now = {
            id(vars(import_module(place))[name])
            for place in FORMER.get(module, ())
            if name in vars(import_module(place))
        }
        assert now <= {id(getattr(found, name))}
        assert getattr(found, name) is not None


@pytest.mark.parametrize("module", FORMER)
def test_every_former_module_is_made_of_modules_there_are(module):
    assert import_module(module) is sys.modules[module]
    with pytest.raises(AttributeError, match=module):
        _ = import_module(module).no_such_name


def test_other_modules_are_still_not_there():
    with pytest.raises(ModuleNotFoundError):
        import_module("rainbow.matching.nothing")


PLUGIN = """
from rainbow.matching.verdict import Verdict
from rainbow.selection.choice import Choice


class First:
    def check(self, options):
        return []

    def select(self, candidates, states, parameters, options, rng):
        assert all(isinstance(one, Verdict) for one in candidates)
        return Choice(candidates[0].cluster, "first")
"""


def test_a_plug_in_written_for_the_former_modules_is_used(tmp_path, monkeypatch):
    (tmp_path / "their_older_package.py").write_text(PLUGIN)
    info = tmp_path / "their_older_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-older-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rainbow.selectors]\nfirst = their_older_package:First\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(selectors, "_built_in", dict(selectors._built_in))
    verdict = import_module("rainbow.matching.verdict").Verdict
    request = import_module("rainbow.jobspec").Request(((),), ())
    assert select(request, [verdict("alpha", True), verdict("bravo", True)], {}, selector="first").cluster == "alpha"


def test_a_run_that_waits_in_a_queue_since_before_starts(tmp_path):
    run = Run(("t-0", 1), "j", ("echo", "still", "here"))
    desk = SharedFolder(tmp_path)
    desk.put(run, {"PATH": "/usr/bin:/bin"})
    start = Path(rainbow.__file__).parent / "agent" / "bare.py"
    argv = [sys.executable, "-I", "-S", start, "on_node", tmp_path, key_of(run.id), "1"]
    subprocess.run(argv, check=True, timeout=60)
    assert (desk.read_end(run.id, 0).exit_code, desk.read_end(run.id, 0).output) == (0, "still here\n")
