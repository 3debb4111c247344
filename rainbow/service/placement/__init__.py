"""A job comes in: it is matched, one cluster is selected, job and decision are stored; moved, where that allows."""
