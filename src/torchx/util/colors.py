"""Escape sequences for colours; empty unless standard output is a terminal."""

import sys


def _on_terminal() -> bool:
    try:
        return not sys.stdout.closed and sys.stdout.isatty()
    except AttributeError:  # no standard output at all
        return False


_ON = _on_terminal()
GREEN = "\033[32m" if _ON else ""
BLUE = "\033[34m" if _ON else ""
ORANGE = "\033[38:2:238:76:44m" if _ON else ""
GRAY = "\033[2m" if _ON else ""
ENDC = "\033[0m" if _ON else ""
