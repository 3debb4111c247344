"""HTTP: decode, authenticate, call one verb of the service, encode."""

from rainbow.api.server import create_app

__all__ = ["create_app"]
