"""AsyncClient called as Client is, so that one suite is for both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self


class Blocking:
    """An AsyncClient with an event loop of its own."""

    def __init__(self, *inputs: Any, **named: Any) -> None:
        from rainbow.client import AsyncClient

        self._client, self._runner = AsyncClient(*inputs, **named), asyncio.Runner()

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._client, name)
        return self._called(result) if callable(result) else result

    def _called(self, method: Any) -> Any:
        def call(*options: Any, **named: Any) -> Any:
            made = method(*options, **named)
            return self._runner.run(made) if inspect.iscoroutine(made) else self._each(made)

        return call

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        while (item := self._runner.run(following())) is not end:
            yield item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()
