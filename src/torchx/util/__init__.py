"""Helpers that clients import by these paths."""
