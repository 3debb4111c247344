"""`python -m demo`: a server, every example cluster with its agent, every example jobspec, and what became of
them.

schemas.py   what is there to show: graphs/ and jobspecs/
processes.py  the server and the agents, started and ended
interrupts.py Ctrl-C and SIGTERM, never in the middle of starting or ending one of them
judging.py    what became of every jobspec, and where that differs from jobspecs/expected.yaml
showing.py    progress and tables
"""
