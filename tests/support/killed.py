"""What campaigns do to a server and to an agent: kill -9, a pause, a new start."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod


class Killed(ABC):
    """A place whose server and agent are killed and started again."""

    server: subprocess.Popen[bytes]
    agent: subprocess.Popen[bytes]

    @abstractmethod
    def start_server(self) -> None:
        """Start the server on the same store and port."""

    @abstractmethod
    def start_agent(self) -> None:
        """Start the agent on the same state."""

    def kill_server(self, seconds: float) -> None:
        self.server.kill()
        self.server.wait()
        time.sleep(seconds)
        self.start_server()

    def kill_agent(self, seconds: float) -> None:
        self.agent.kill()
        self.agent.wait()
        time.sleep(seconds)
        self.start_agent()
