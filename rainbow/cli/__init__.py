"""The `rainbow` command: every verb of the API for people (tables) and for programs (`-o json`)."""

from rainbow.cli.main import main

__all__ = ["main"]
