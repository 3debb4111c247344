"""Python client of the HTTP API.

from rainbow.client import Client

client = Client("http://127.0.0.1:8080", token="rbt_...")
job = client.submit(open("job.yaml").read())
client.wait(job["id"])
"""

from typing import TYPE_CHECKING, Any

from rainbow.client.http_client import Client
from rainbow.client.transport import Problem

if TYPE_CHECKING:
    from rainbow.client.async_client import AsyncClient

__all__ = ["AsyncClient", "Client", "Problem"]


def __getattr__(name: str) -> Any:
    """Import AsyncClient when it is asked for: it needs the extra `async`."""
    if name != "AsyncClient":
        raise AttributeError(f"module 'rainbow.client' has no attribute {name!r}")
    from rainbow.client.async_client import AsyncClient

    return AsyncClient
