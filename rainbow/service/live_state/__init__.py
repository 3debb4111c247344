"""Each cluster in memory: workers, running and waiting tasks, and the matcher's remembered answers."""
