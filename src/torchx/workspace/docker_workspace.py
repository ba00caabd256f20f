"""Builds workspaces into Docker images."""

from collections.abc import Mapping
from typing import Any

from torchx.specs.api import runopts
from torchx.workspace.api import WorkspaceMixin


class DockerWorkspaceMixin(WorkspaceMixin[Mapping[str, tuple[str, str]]]):
    """Mixed into schedulers whose replicas run in containers."""

    LABEL_VERSION: str = "torchx.pytorch.org/version"

    def __init__(self, *args: Any, docker_client: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__client = docker_client

    def workspace_opts(self) -> runopts:
        """Options of the image builder."""
        opts = runopts()
        opts.add(
            "image_repo",
            type_=str,
            default=None,
            help="repository to push built images to, such as example.com/team/image",
        )
        opts.add("quiet", type_=bool, default=False, help="do not show the output of builds")
        return opts

    @property
    def _docker_client(self) -> Any:
        if self.__client is None:
            import docker

            self.__client = docker.from_env()
        return self.__client
