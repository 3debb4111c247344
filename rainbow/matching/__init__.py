"""Request × clusters → verdicts, each refusal with its reason."""

from rainbow.matching.verdict import Backend, Reason, Take, Verdict, Why

__all__ = ["Backend", "Reason", "Take", "Verdict", "Why"]
