"""Paths of the API, and bodies without what is not given."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from rainbow.errors import RequestError


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are given."""
    return {key: value for key, value in values.items() if value is not None}


def path(*parts: str) -> str:
    """Return the path of something; RequestError for a name that would lead elsewhere."""
    for part in parts:
        if part in ("", ".", ".."):  # they would name another address
            raise RequestError(f"{part!r} is not the name of anything")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def of_cluster(*parts: str) -> str:
    """Return the path of something of a cluster."""
    return path("clusters", *parts)
