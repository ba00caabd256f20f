"""What authors of schedulers explain apps with: codes of causes and rules for a backend's words."""

from ._core.causes import Cause, Evidence, Explanation, Rule

__all__ = ["Cause", "Evidence", "Explanation", "Rule"]
