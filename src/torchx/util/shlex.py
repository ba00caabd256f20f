"""Name of release 0.7 for ``shlex.join``."""

from shlex import join

__all__ = ["join"]
