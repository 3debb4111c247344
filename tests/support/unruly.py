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
            found, self._open = self._open, set()
        for one in found:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

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
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                other.sendall(piece)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            with self._lock:
                self._open.discard(end)
