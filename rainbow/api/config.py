"""/v1/config: the configuration file read again."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.asking import service, who
from rainbow.service import reloading

config = Blueprint("config", __name__, url_prefix="/v1")


@config.post("/config:reload")
def reload() -> Any:
    """Check the server's configuration file and take it over; one that cannot be used changes nothing."""
    return jsonify(reloading.reload(service(), who()))
