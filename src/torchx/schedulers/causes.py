"""For authors of schedulers: codes of causes, and rules for a backend's messages."""

from ._core.causes import Cause, Evidence, Explanation, Rule

__all__ = ["Cause", "Evidence", "Explanation", "Rule"]
