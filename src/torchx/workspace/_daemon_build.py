"""Builds the image of a workspace with a Docker daemon, unless the same was built before."""

from typing import Any

from torchx._projects.entry import Entry, announce
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs.api import Workspace
from torchx.version import __version__
from torchx.workspace import _buildx, _built, _docker
from torchx.workspace._image_recipe import (
    TORCHX_DOCKERFILE,
    has_dockerfile,
    own_dockerfile,
    with_dockerfile,
)
from torchx.workspace._tar import TarStream

logger = get_logger("torchx.workspace.docker_workspace")


class DaemonBuilder:
    """Builds images with one daemon.

    Args:
        client: of the daemon.
        label: the label of images that gets our version.
        quiet: do not show the output of builds, nor the progress of pulls.
    """

    def __init__(self, client: Any, *, label: str, quiet: bool) -> None:
        self._client = client
        self._label = label
        self._quiet = quiet

    def build(self, image: str, workspace: Workspace | str, entries: list[Entry]) -> str:
        """The id of the workspace's image.

        Args:
            image: what it is built on; may be empty if the workspace has a Dockerfile.
        """
        client, quiet = self._client, self._quiet
        if has_dockerfile(entries):
            if image:
                _docker.find_or_pull(client, image, required=False, quiet=quiet)
            return self._send(image, workspace, entries)
        if not image:
            msg = (
                f"the workspace `{workspace}` needs an image to be built on; give the role an"
                f" image, or the workspace a `{TORCHX_DOCKERFILE}`"
            )
            raise InvalidInput(msg)
        base = _docker.find_or_pull(client, image, required=True, quiet=quiet)
        place = f"{workspace} {image} {client.api.base_url}"
        same = _built.fingerprint(entries, place, str(base), __version__)
        built = _built.recall(place, same) if same else None
        if built and _docker.image_id(client, built):
            logger.info("workspace `%s` on image `%s` has not changed", workspace, image)
            return built
        built = self._send(image, workspace, entries)
        if same:
            _built.remember(place, same, built)
        return built

    def _send(self, image: str, workspace: Workspace | str, entries: list[Entry]) -> str:
        """Has the daemon build the image; gives its id."""
        feature = _buildx.feature_of_buildkit(own_dockerfile(entries))
        if feature is not None:
            _buildx.check_available(feature)
        announce(entries, workspace)
        context = TarStream(with_dockerfile(entries))
        about: dict[str, Any] = {
            "dockerfile": TORCHX_DOCKERFILE,
            "arguments": {"IMAGE": image, "WORKSPACE": str(workspace)},
            "labels": {self._label: __version__},
            "quiet": self._quiet,
        }
        if feature is not None:
            return _buildx.build(context, **about)
        return _docker.build(self._client, context, **about)
