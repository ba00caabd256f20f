"""What authors of schedulers tell ``torchx doctor`` with."""

from ._core.checkups import (
    Checkup,
    Configured,
    Finding,
    Verdict,
    broken,
    folder_finding,
    missing_programs,
    neutral,
    ok,
    warning,
)

__all__ = [
    "Checkup",
    "Configured",
    "Finding",
    "Verdict",
    "broken",
    "folder_finding",
    "missing_programs",
    "neutral",
    "ok",
    "warning",
]
