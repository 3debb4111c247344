"""Modules that have moved: what a plug-in imports from where it was can still be imported from there.

A former module is made when it is imported. It looks its names up where they are now, so they are the same
objects; it has no others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # what they are is for readers; every command would wait for their imports
    Loader = MetaPathFinder = object

FORMER: Mapping[str, tuple[str, ...]] = {
    "rainbow.agent.executor": ("rainbow.agent.executors.interface", "rainbow.agent.executors.run"),
    "rainbow.agent.loop": ("rainbow.agent.work_loop",),
    "rainbow.agent.runs": ("rainbow.agent.executors.run",),
    "rainbow.client.calls": ("rainbow.client.transport",),
    "rainbow.client.verbs": ("rainbow.client.http_client",),
    "rainbow.client.wire": ("rainbow.client.responses",),
    "rainbow.graph.limits": ("rainbow.graph.document",),
    "rainbow.graph.order": ("rainbow.text",),
    "rainbow.graph.reading": ("rainbow.graph.conversion", "rainbow.graph.cluster"),
    "rainbow.graph.writing": ("rainbow.graph.conversion",),
    "rainbow.jobs": ("rainbow.state_machine",),
    "rainbow.jobspec.command": ("rainbow.jobspec.parse",),
    "rainbow.jobspec.reading": ("rainbow.jobspec.parse",),
    "rainbow.jobspec.text": ("rainbow.jobspec.yaml_reader",),
    "rainbow.matching.index": ("rainbow.matching.index_backend",),
    "rainbow.matching.verdict": ("rainbow.matching.model.verdict",),
    "rainbow.matching.walk": ("rainbow.matching.networkx_backend",),
    "rainbow.scheduling.check": ("rainbow.scheduling.invariants",),
    "rainbow.scheduling.policy": ("rainbow.scheduling.interface", "rainbow.scheduling.snapshot"),
    "rainbow.selection.random": ("rainbow.selection.select",),
    "rainbow.service.config": ("rainbow.service.core.settings",),
    "rainbow.service.service": ("rainbow.service.core.service",),
    "rainbow.service.settings": ("rainbow.service.core.settings",),
}
FORMER_NAMES = {"Index": "IndexBackend", "Walk": "NetworkxBackend"}


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave the making of the module to Python."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Let the module look up its names where they are now."""

        def find(name: str) -> Any:
            for place in map(import_module, FORMER[module.__name__]):
                for known in (name, FORMER_NAMES.get(name)):
                    if known in vars(place):
                        return vars(place)[known]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        vars(module)["__getattr__"] = find


class FormerModules(MetaPathFinder):
    """Finds the modules of FORMER; Python asks it last, about what nothing else has found."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to make a former module, None for any other."""
        return ModuleSpec(fullname, _Loader()) if fullname in FORMER else None


def install() -> None:
    """Let Python find the former modules, once."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.append(FormerModules())
