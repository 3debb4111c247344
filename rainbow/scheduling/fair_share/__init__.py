"""The fair-share policy: the DUCC Resource Manager, founded anew. policy.py names its phases."""

from rainbow.scheduling.fair_share.policy import FairShare

__all__ = ["FairShare"]
