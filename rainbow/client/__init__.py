"""Python client of the HTTP API.

from rainbow.client import Client

client = Client("http://127.0.0.1:8080", token="rbt_...")
job = client.submit(open("job.yaml").read())
client.wait(job["id"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.client.async_client import AsyncClient
    from rainbow.client.http_client import Client
    from rainbow.client.transport import Problem
    from rainbow.errors import RequestError, TryLater, Unavailable

__all__ = ["AsyncClient", "Client", "Problem", "RequestError", "TryLater", "Unavailable"]

# imported when they are asked for: AsyncClient needs the extra `async`, and HTTP a quarter of a second
PLACES = {
    "AsyncClient": "client.async_client",
    "Client": "client.http_client",
    "Problem": "client.transport",
    **dict.fromkeys(("RequestError", "TryLater", "Unavailable"), "errors"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for, and keep it."""
    if name not in PLACES:
        raise AttributeError(f"module 'rainbow.client' has no attribute {name!r}")
    result = globals()[name] = getattr(import_module(f"rainbow.{PLACES[name]}"), name)
    return result
