"""Interpretation of models: no component of its own, as it is an ordinary program.

Launch one with ``utils.python``. The page on interpretation describes how.
"""
