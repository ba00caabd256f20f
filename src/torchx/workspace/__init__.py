"""Builds what a job runs from local source directories."""

from torchx.workspace.api import WorkspaceMixin, pin_workspace_images

__all__ = ["WorkspaceMixin", "pin_workspace_images"]
