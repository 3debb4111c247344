"""The last forecasts of a service: one object, changed by the forecaster's thread and by submits."""

from __future__ import annotations

import threading

from rainbow.forecast import outlook


class Outlook(outlook.Outlook):
    """What is known of each cluster's time to come, for all threads."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())
