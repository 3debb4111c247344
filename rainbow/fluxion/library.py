"""The process that has Fluxion's library loaded: `python -m rainbow.fluxion.library`, a line of JSON in, one out.

{"graph", "jobspec", "most"} is answered by {"satisfiable", "allocated", "exact"}: what up to `most` copies hold, as
the library writes R. {} is answered by {}: the library is there. What it refuses is {"error"}; one that is not
there, or cannot be loaded, {"missing"}. The library's C interface is that of flux-sched's reapi_cli.h. A fault in it
ends this process alone.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

NAME = "libreapi_cli.so"
OPTIONS = json.dumps({"load_format": "jgf", "match_format": "rv1", "matcher_name": "CA", "matcher_policy": "low"})
MOST_GRAPHS = 8  # that stay loaded


class Refused(Exception):
    """The library answers that it cannot."""


class Library:
    """The functions of the library that are called, with their types."""

    def __init__(self, path: str) -> None:
        self._calls = calls = ctypes.CDLL(path)
        context, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
        flag, real = ctypes.POINTER(ctypes.c_bool), ctypes.POINTER(ctypes.c_double)
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [context]
        calls.reapi_cli_new.restype = context
        calls.reapi_cli_destroy.argtypes = [context]
        calls.reapi_cli_initialize.argtypes = [context, text, text]
        calls.reapi_cli_match_satisfy.argtypes = [context, text, flag, real]
        whole = ctypes.POINTER(ctypes.c_int64)
        calls.reapi_cli_match_allocate.argtypes = [
            *(context, ctypes.c_bool, text, ctypes.POINTER(number), flag),
            *(ctypes.POINTER(context), whole, real),
        ]
        calls.reapi_cli_cancel.argtypes = [context, number, ctypes.c_bool]
        calls.reapi_cli_get_err_msg.argtypes, calls.reapi_cli_get_err_msg.restype = [context], text
        self._loaded: dict[str, int] = {}

    def answer(self, graph: str, jobspec: str, most: int) -> dict[str, Any]:
        """Say whether a jobspec can ever run on a graph, and what copies of it hold, one after another."""
        context, spec = self._context(graph), jobspec.encode()
        satisfiable, overhead = ctypes.c_bool(), ctypes.c_double()
        called = self._calls.reapi_cli_match_satisfy(context, spec, ctypes.byref(satisfiable), ctypes.byref(overhead))
        if called != 0 and self._said(context):
            raise Refused(self._said(context))
        if called != 0 or not satisfiable.value:
            return {"satisfiable": False, "allocated": [], "exact": True}
        jobs: list[int] = []
        held: list[str] = []
        try:
            while len(held) < most and (allocated := self._allocate(context, spec, jobs)) is not None:
                held.append(allocated)
        finally:
            for job in jobs:
                self._calls.reapi_cli_cancel(context, job, True)
        return {"satisfiable": True, "allocated": held, "exact": len(held) < most}

    def _context(self, graph: str) -> int:
        """Return the context of a graph, loaded before or now."""
        if graph not in self._loaded:
            context = self._calls.reapi_cli_new()
            if not context:
                raise Refused("no context can be made")
            if self._calls.reapi_cli_initialize(context, graph.encode(), OPTIONS.encode()) != 0:
                said = self._said(context) or "the graph cannot be loaded"
                self._calls.reapi_cli_destroy(context)
                raise Refused(said)
            if len(self._loaded) == MOST_GRAPHS:
                self._calls.reapi_cli_destroy(self._loaded.pop(next(iter(self._loaded))))
            self._loaded[graph] = context
        return self._loaded[graph]

    def _allocate(self, context: int, spec: bytes, jobs: list[int]) -> str | None:
        job, reserved, at, overhead = ctypes.c_uint64(), ctypes.c_bool(), ctypes.c_int64(), ctypes.c_double()
        text = ctypes.c_void_p()
        inputs = (ctypes.byref(one) for one in (job, reserved, text, at, overhead))
        if self._calls.reapi_cli_match_allocate(context, False, spec, *inputs) != 0:
            return None
        jobs.append(job.value)
        if not text.value:
            return ""
        try:
            return ctypes.string_at(text.value).decode(errors="replace")
        finally:
            self.free(text)

    def _said(self, context: int) -> str:
        return str((self._calls.reapi_cli_get_err_msg(context) or b"").decode(errors="replace")).strip()


def found() -> str:
    """Return where the library is: where RAINBOW_FLUXION says, else where the loader finds it."""
    return os.environ.get("RAINBOW_FLUXION") or ctypes.util.find_library("reapi_cli") or NAME


def answer(library: Library, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one line."""
    if not request:
        return {}
    try:
        return library.answer(request["graph"], request["jobspec"], request["most"])
    except Refused as fault:
        return {"error": str(fault)}


def main() -> None:
    """Answer until the input ends; what the library prints goes where errors go."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        try:
            library: Library | None = Library(found())
        except (OSError, AttributeError) as fault:
            library, missing = None, str(fault)
        for line in sys.stdin:
            reported = answer(library, json.loads(line)) if library else {"missing": missing}
            out.write(json.dumps(reported) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
