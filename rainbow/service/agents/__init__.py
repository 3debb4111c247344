"""Agents: their messages, and which of them are alive."""
