"""Workspaces as container images, built by a Docker daemon on top of the role's image."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, TextIO

from torchx._lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs.api import AppDef, CfgVal, Role, Workspace, runopts
from torchx.version import __version__
from torchx.workspace._tree import Entry, announce, scan
from torchx.workspace.api import WorkspaceMixin

__all__ = ["DEFAULT_DOCKERFILE", "TORCHX_DOCKERFILE", "DockerWorkspaceMixin", "print_push_events"]

TORCHX_DOCKERFILE = "Dockerfile.torchx"

DEFAULT_DOCKERFILE = b"""
ARG IMAGE
FROM $IMAGE

COPY . .
"""

logger = get_logger(__name__)

_Build = Callable[[str, "Workspace | str", list[Entry], Mapping[str, CfgVal]], str]

_LOCAL_ID = "sha256:"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")


class _NoImageRepo(InvalidInput, KeyError):
    """There is nowhere to push to; older callers catch the second of these."""

    def __str__(self) -> str:
        return str(self.args[0])


class DockerWorkspaceMixin(WorkspaceMixin[dict[str, tuple[str, str]]]):
    """Builds an image with the workspace in it, and pushes it where ``image_repo`` says.

    ``Dockerfile.torchx`` in the root of the workspace says how; it gets the role's image as the
    argument ``IMAGE``, and the workspace's path as ``WORKSPACE``. Without one, the workspace is
    copied into the image's working directory.

    Args:
        docker_client: client of the Docker SDK; ``None`` connects on first use to the daemon that
            the environment names.
    """

    LABEL_VERSION: str = "torchx.pytorch.org/version"

    def __init__(self, *args: Any, docker_client: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__client = docker_client
        self.__client_is_own = docker_client is None
        self.__pushed: dict[str, str] = {}

    @property
    def _docker_client(self) -> Any:
        if self.__client is None:
            from torchx.workspace import _docker

            self.__client = _docker.connect()
        return self.__client

    def workspace_opts(self) -> runopts:
        """Where images go, and whether the build is shown."""
        opts = runopts()
        opts.add(
            "image_repo",
            type_=str,
            default=None,
            help="repository that built images are pushed to, such as example.com/team/img; needed"
            " by backends that run elsewhere",
        )
        opts.add("quiet", type_=bool, default=False, help="do not log the output of image builds")
        return opts

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Builds the image of one role, unless an earlier role had the same.

        Raises:
            InvalidInput: if the workspace, the image or the Dockerfile is wrong.
            BackendUnavailable: if there is no Docker daemon.
        """
        workspace = role.workspace
        if not workspace:
            return
        own = DockerWorkspaceMixin.build_workspace_and_update_role
        if type(self).build_workspace_and_update_role is not own:
            super().caching_build_workspace_and_update_role(role, cfg, build_cache)
            return
        key = (DockerWorkspaceMixin, role.image, workspace)
        if key not in build_cache:
            build_cache[key] = self._build(role, workspace, cfg)
        role.image = str(build_cache[key])

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Builds the image of one role from one directory."""
        role.image = self._build(role, workspace, cfg)

    def dryrun_push_images(
        self, app: AppDef, cfg: Mapping[str, CfgVal]
    ) -> dict[str, tuple[str, str]]:
        """Gives roles the names that their local images will have in ``image_repo``.

        Returns:
            The local images, each with the repository and tag to push it as.

        Raises:
            KeyError: if there is an image to push and no ``image_repo``.
        """
        images: dict[str, tuple[str, str]] = {}
        for role in app.roles:
            if not role.image.startswith(_LOCAL_ID):
                continue
            repository = _image_repo(cfg)
            if not repository:
                msg = (
                    f"the image of role `{role.name}` is on this machine only, and the job runs"
                    " elsewhere; give the option `image_repo` a repository to push it to, such as"
                    " `example.com/team/img`"
                )
                raise _NoImageRepo(msg)
            tag = role.image.removeprefix(_LOCAL_ID)
            images[role.image] = (repository, tag)
            role.image = f"{repository}:{tag}"
        return images

    def push_images(self, images_to_push: dict[str, tuple[str, str]]) -> None:
        """Pushes local images; ``pushed_image`` knows their digests afterwards.

        Raises:
            RuntimeError: if the registry refuses, or keeps failing.
        """
        from torchx.workspace import _docker

        for image, (repository, tag) in images_to_push.items():
            digest = _docker.push(self._docker_client, image, repository, tag)
            if digest:
                self.__pushed[f"{repository}:{tag}"] = f"{repository}@{digest}"
                logger.info("pushed `%s:%s` as `%s@%s`", repository, tag, repository, digest)

    def pushed_image(self, image: str) -> str:
        """The name by digest of an image that was pushed, any other one as it is.

        For what is submitted: a tag can be moved to another image, a digest cannot.
        """
        return self.__pushed.get(image, image)

    def close(self) -> None:
        """Ends the connection to the daemon, and closes the scheduler."""
        if self.__client_is_own and self.__client is not None:
            self.__client.close()
            self.__client = None
        close = getattr(super(), "close", None)
        if close is not None:
            close()

    def _build(self, role: Role, workspace: Workspace | str, cfg: Mapping[str, CfgVal]) -> str:
        _image_repo(cfg)
        entries = scan(workspace)
        build = self._choose_builder(role.image, entries, cfg)
        return build(role.image, workspace, entries, cfg)

    def _choose_builder(
        self, image: str, entries: Sequence[Entry], cfg: Mapping[str, CfgVal]
    ) -> _Build:
        """What builds: called with image, workspace, entries and cfg it gives the new image."""
        return self._build_with_docker

    def _build_with_docker(
        self,
        image: str,
        workspace: Workspace | str,
        entries: list[Entry],
        cfg: Mapping[str, CfgVal],
    ) -> str:
        from torchx.workspace import _built, _docker

        client = self._docker_client
        if has_dockerfile(entries):
            if image:
                _docker.find_or_pull(client, image, required=False)
            return self._send(image, workspace, entries, cfg)
        if not image:
            msg = (
                f"the workspace `{workspace}` needs an image to be built on; give the role an"
                f" image, or the workspace a `{TORCHX_DOCKERFILE}`"
            )
            raise InvalidInput(msg)
        base = _docker.find_or_pull(client, image, required=True)
        place = f"{workspace} {image} {client.api.base_url}"
        same = _built.fingerprint(entries, place, str(base), __version__)
        built = _built.recall(place, same) if same else None
        if built and _docker.image_id(client, built):
            logger.info("workspace `%s` on image `%s` has not changed", workspace, image)
            return built
        built = self._send(image, workspace, entries, cfg)
        if same:
            _built.remember(place, same, built)
        return built

    def _send(
        self,
        image: str,
        workspace: Workspace | str,
        entries: list[Entry],
        cfg: Mapping[str, CfgVal],
    ) -> str:
        """Has the daemon build the image; gives its id."""
        from torchx.workspace import _docker
        from torchx.workspace._tar import TarStream

        announce(entries, workspace)
        return _docker.build(
            self._docker_client,
            TarStream(with_dockerfile(entries)),
            dockerfile=TORCHX_DOCKERFILE,
            arguments={"IMAGE": image, "WORKSPACE": str(workspace)},
            labels={self.LABEL_VERSION: __version__},
            quiet=bool(cfg.get("quiet")),
        )


def has_dockerfile(entries: Iterable[Entry]) -> bool:
    """Whether a workspace brings its own Dockerfile."""
    return any(e.path == TORCHX_DOCKERFILE and e.kind != "dir" for e in entries)


def with_dockerfile(entries: list[Entry]) -> list[Entry]:
    """What is sent to be built: the workspace, with the default Dockerfile if it has none."""
    if has_dockerfile(entries):
        return entries
    size = len(DEFAULT_DOCKERFILE)
    default = Entry(TORCHX_DOCKERFILE, "file", 0o644, size, content=DEFAULT_DOCKERFILE)
    return [*entries, default]


def print_push_events(events: Iterable[Mapping[str, Any]], stream: TextIO | None = None) -> None:
    """Shows the progress of a push: a line for each layer.

    Args:
        events: of the Docker daemon, decoded.
        stream: ``None`` is stderr. Lines are written again only on a terminal.

    Raises:
        RuntimeError: if an event has an error.
    """
    from torchx.workspace import _push_events

    _push_events.show(events, stream or sys.stderr, "push")


def _image_repo(cfg: Mapping[str, CfgVal]) -> str | None:
    repository = cfg.get("image_repo")
    if repository is None or repository == "":
        return None
    if not isinstance(repository, str) or not _REPOSITORY.fullmatch(repository):
        msg = (
            f"`image_repo` is `{repository}`, which is not the name of a repository; write it in"
            " small letters and without a tag, such as `example.com/team/img`"
        )
        raise InvalidInput(msg)
    return repository


def _build_context(img: str, workspace: str) -> IO[bytes]:
    """A temporary file with the build context of a workspace, at its start."""
    import tempfile

    from torchx.workspace._tar import write

    context = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    try:
        write(with_dockerfile(scan(workspace)), context)
    except BaseException:
        context.close()
        raise
    context.seek(0)
    return context
