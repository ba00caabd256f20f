"""Training: no component of its own, as every trainer differs.

Launch one with ``dist.ddp``, or ``utils.python`` if it runs in a single process, and write a
component around it once its arguments are settled. The page on training describes how.
"""
