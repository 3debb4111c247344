"""A line that can be cut and slowed: a TCP proxy for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class Proxy:
    """Passes connections on to a port. While `cut` it takes none; `delay` seconds hold up every piece."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.cut = False
        self.delay = 0.0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._ended = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        self._ended = True
        self._door.close()
        self.close_all()

    def close_all(self) -> None:
        """Cut what is connected now, in the midst of whatever it says."""
        with self._lock:
            result, self._open = self._open, set()
        for one in result:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def allowed(self, piece: bytes, _server: socket.socket, _is_request: bool) -> tuple[bytes, bool]:
        """Return what of a piece is passed on, and whether the line holds after it."""
        return piece, True

    def _serve(self) -> None:
        while not self._ended:
            try:
                inner, _ = self._door.accept()
            except OSError:
                return
            if self.cut:
                inner.close()
                continue
            try:
                outer = socket.create_connection(("127.0.0.1", self._to), timeout=5)
            except OSError:
                inner.close()
                continue
            outer.settimeout(None)
            with self._lock:
                self._open |= {inner, outer}
            for one, other in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pass_on, args=(one, other, one is inner), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                piece, goes_on = self.allowed(piece, other if is_request else one, is_request)
                other.sendall(piece)
                if not goes_on:
                    break
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            with self._lock:
                self._open.discard(end)


class CommitCutter(Proxy):
    """Cuts a line to PostgreSQL at its next COMMIT: "before it arrives", or "before its answer"; "" does not."""

    def __init__(self, to: int) -> None:
        super().__init__(to)
        self.at_commit = ""
        self._committing: set[socket.socket] = set()

    def allowed(self, piece: bytes, server: socket.socket, is_request: bool) -> tuple[bytes, bool]:
        """Cut where it is set to."""
        if is_request and b"COMMIT" in piece:
            if self.at_commit == "before it arrives":
                return b"", False
            if self.at_commit:
                self._committing.add(server)
        return (b"", False) if not is_request and server in self._committing else (piece, True)


class AnswerCutter(Proxy):
    """Passes on so many bytes of the answer to each request that begins so, and cuts the line then; None: all."""

    def __init__(self, to: int, request: bytes = b"") -> None:
        super().__init__(to)
        self.most: int | None = None
        self._request = request
        self._passed: dict[socket.socket, int] = {}

    def allowed(self, piece: bytes, server: socket.socket, is_request: bool) -> tuple[bytes, bool]:
        """Cut where it is set to."""
        if is_request and self.most is not None and piece.startswith(self._request):
            self._passed[server] = 0
        if is_request or self.most is None or server not in self._passed:
            return piece, True
        before = self._passed[server]
        self._passed[server] = before + len(piece)
        return piece[: max(0, self.most - before)], before + len(piece) < self.most
