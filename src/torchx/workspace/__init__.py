"""Builds images and directories for jobs from local source directories."""

from torchx.workspace.api import (
    MultiWorkspaceMixin,
    WorkspaceMixin,
    pin_workspace_images,
    walk_workspace,
)

__all__ = ["MultiWorkspaceMixin", "WorkspaceMixin", "pin_workspace_images", "walk_workspace"]
