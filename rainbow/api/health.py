"""/livez, /readyz and the front page."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from flask import Blueprint, jsonify

from rainbow.api.asking import service

health = Blueprint("health", __name__)


@health.get("/livez")
def live() -> Any:
    """Say that the process answers."""
    return jsonify(status="live")


@health.get("/readyz")
def ready() -> Any:
    """Say that the store answers too."""
    with service().store.read() as connection:
        connection.execute(sa.text("SELECT 1"))
    return jsonify(status="ready", scheduler=service().settings.name)


@health.get("/")
def front() -> Any:
    """Say what this is and where to go on."""
    verbs = ["/v1/clusters", "/v1/jobs", "/v1/match", "/livez", "/readyz", "/metrics"]
    return jsonify(service="rainbow", scheduler=service().settings.name, verbs=verbs)
