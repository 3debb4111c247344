"""Clusters with strict levels, matched as flux-sched does."""
