"""Messages about files of a workspace."""

from torchx.errors import UnreadableWorkspace

LEAVE_OUT = (
    "leave it out with a line in the ignore file of its project: `.torchxignore`, or"
    " `.dockerignore` if the project has only that"
)
"""Advice about a file; if both exist, the second is not read."""


def unreadable(path: str, err: Exception) -> UnreadableWorkspace:
    """Returns the error for a file or folder of the workspace that cannot be read."""
    if isinstance(err, FileNotFoundError):
        why = "it was there a moment ago and is gone"
    else:
        why = str(getattr(err, "strerror", None) or err)
    return UnreadableWorkspace(
        f"cannot read `{path}` of the workspace: {why}; make it readable, or {LEAVE_OUT}"
    )
