"""The policy `fair_share`, after the DUCC Resource Manager. policy.py names its phases."""

from rainbow.scheduling.fair_share.policy import FairShare

__all__ = ["FairShare"]
