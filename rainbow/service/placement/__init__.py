"""Placement: match a job, select one cluster, store job and decision; move jobs of lost clusters."""
