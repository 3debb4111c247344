"""Requests to an ASGI application without a network: bodies come in pieces, and answers as they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

PIECE = 65_536  # bytes of a body that come at once


@dataclass
class Answer:
    """What was sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """Read the body."""
        return json.loads(self.body)


@dataclass
class Request:
    """One request. `taken` counts the bytes of its body that were read."""

    method: str
    path: str
    body: bytes = b""
    token: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    has_length: bool = True
    taken: int = 0

    @property
    def scope(self) -> dict[str, Any]:
        """The request as ASGI describes it."""
        answer = {"authorization": f"Bearer {self.token}"} if self.token else {}
        length = {"content-length": str(len(self.body))} if self.has_length else {"transfer-encoding": "chunked"}
        headers = {**answer, **(length if self.body else {}), **self.headers}
        return {
            "type": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "http_version": "1.1",
        }

    async def receive(self) -> dict[str, Any]:
        """Give the next piece of the body."""
        if self.taken >= len(self.body) > 0:
            await asyncio.get_running_loop().create_future()  # the client stays
        piece = self.body[self.taken :][:PIECE]
        self.taken += len(piece)
        return {"type": "http.request", "body": piece, "more_body": self.taken < len(self.body)}

    async def sent_to(self, app: Any) -> Answer:
        """Send it; return what is answered."""
        answer = Answer()

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {key.decode(): value.decode() for key, value in message["headers"]}
            else:
                answer.body += message["body"]

        await app(self.scope, self.receive, send)
        return answer


def ask(app: Any, *requests: Request) -> list[Answer]:
    """Send requests at once; return their answers."""

    async def all_of() -> Iterable[Answer]:
        return await asyncio.gather(*(one.sent_to(app) for one in requests))

    return list(asyncio.run(all_of()))
