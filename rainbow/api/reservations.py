"""/v1/clusters/{name}/reservations: make, list, show, delete."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.asking import flag, read_mapping, service, who
from rainbow.service.clusters import reserving

reservations = Blueprint("reservations", __name__, url_prefix="/v1/clusters/<name>/reservations")


@reservations.post("")
def create(name: str) -> Any:
    """Keep space in advance."""
    asking = who()
    return jsonify(reserving.create(service(), asking, name, read_mapping("Reservation"))), 201


@reservations.get("")
def listing(name: str) -> Any:
    """List the reservations of a cluster, the first to start first."""
    return jsonify(reservations=reserving.listing(service(), who(), name, every=flag("over")))


@reservations.get("/<reservation_id>")
def show(name: str, reservation_id: str) -> Any:
    """Show one."""
    return jsonify(reserving.show(service(), who(), name, reservation_id))


@reservations.delete("/<reservation_id>")
def delete(name: str, reservation_id: str) -> Any:
    """End one now."""
    reserving.delete(service(), who(), name, reservation_id)
    return "", 204
