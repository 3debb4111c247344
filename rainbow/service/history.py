"""What is over is kept for a while, and then forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.store import agents, history, reservations

if TYPE_CHECKING:
    from rainbow.service.service import Service

MOST = 1_000  # jobs forgotten at once: those who want to write meanwhile wait for it


def forget_old(service: Service) -> int:
    """Forget ended jobs and events older than the settings say; return how many jobs."""
    before = service.clock() - service.settings.history
    with service.store.read() as connection:
        if not history.has_older(connection, before):
            return 0
    with service.store.write() as connection:
        agents.forget(connection, before)
        reservations.forget(connection, before)
        return history.forget(connection, before, MOST)
