"""/v1/tokens: mint, list, rotate, revoke."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.asking import read_mapping, service, who
from rainbow.api.times import timed
from rainbow.service import tokens as verbs

tokens = Blueprint("tokens", __name__, url_prefix="/v1/tokens")


@tokens.post("")
def mint() -> Any:
    """Mint a submit token; it is told once."""
    asking = who()
    return jsonify(timed(verbs.mint_token(service(), asking, read_mapping("Token")))), 201


@tokens.get("")
def listing() -> Any:
    """List the credentials of the caller's own clusters."""
    return jsonify(tokens=timed(verbs.listing(service(), who())))


@tokens.post("/<id:token_id>:rotate")
def rotate(token_id: str) -> Any:
    """Give it a new value, told once; the old one ends."""
    return jsonify(timed(verbs.rotate(service(), who(), token_id)))


@tokens.delete("/<id:token_id>")
def revoke(token_id: str) -> Any:
    """End a token."""
    verbs.revoke(service(), who(), token_id)
    return "", 204
