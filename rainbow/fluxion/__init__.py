"""Flux's scheduler Fluxion as a backend: which clusters can run a job, by flux-sched's own library.

backend.py    the backend, as matching knows it
documents.py  a cluster as JGF and a request as a canonical jobspec; what Fluxion allocated, read
helper.py     the process beside this one, its time limit, and what becomes of it
library.py    that process: it loads the library, and answers line by line
"""
