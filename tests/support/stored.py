"""What a service has stored, as its administrator sees it."""

from __future__ import annotations

from typing import Any

from tests.conftest import ADMIN, Api


def stored(api: Api) -> tuple[Any, Any]:
    clusters = api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]
    return clusters, api.good("GET", "/v1/jobs", None, ADMIN)["jobs"]
