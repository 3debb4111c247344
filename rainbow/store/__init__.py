"""The store: SQLAlchemy Core over SQLite (default) or PostgreSQL.

`open_store(url)` gives a Store; the modules of this folder are plain functions that take its connections.
"""

from rainbow.store.engine import Store, file_of, open_store

__all__ = ["Store", "file_of", "open_store"]
