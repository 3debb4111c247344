"""`python -m demo`: a server, every example cluster with its agent, every example jobspec, and what became of them.

examples.py   what is there to show: graphs/ and jobspecs/
processes.py  the server and the agents, started and ended
judging.py    what became of every jobspec, and where that differs from jobspecs/expected.yaml
showing.py    progress and tables
"""
