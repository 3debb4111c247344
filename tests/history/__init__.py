"""Histories of Rainbow under faults: recorded by `record`, judged by `check`."""
