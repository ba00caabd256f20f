"""Keeps the garbage collector from looking at what a command has just imported.

Without it the collector runs some thirty times while modules are loaded, and once over all of them
when the process ends: a fifth of the time of a dry run, and there is no garbage in it.
"""

import atexit
import gc

_THRESHOLD = 50_000


def spare() -> None:
    """Has it look neither now, when there is no garbage, nor when the process ends."""
    gc.set_threshold(_THRESHOLD)
    atexit.register(gc.freeze)
