"""For authors of schedulers: checks and findings of ``torchx doctor``."""

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
from ._image_checkups import container_checkups

__all__ = [
    "Checkup",
    "Configured",
    "Finding",
    "Verdict",
    "broken",
    "container_checkups",
    "folder_finding",
    "missing_programs",
    "neutral",
    "ok",
    "warning",
]
