"""The workspace builders of slurm: copies in a shared directory, and container images."""

from collections.abc import Mapping
from typing import Any

from torchx.workspace.api import WorkspaceMixin


def workspace_builders(docker_client: object) -> "Mapping[str, WorkspaceMixin[Any]]":
    """The builders by the value of ``workspace_type``, the default first."""
    from torchx.workspace.dir_workspace import DirWorkspaceMixin
    from torchx.workspace.docker_workspace import DockerWorkspaceMixin

    return {
        "dir": DirWorkspaceMixin(),
        "docker": DockerWorkspaceMixin(docker_client=docker_client),
    }
