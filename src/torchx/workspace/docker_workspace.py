"""Workspaces as container images, built by a Docker daemon on top of the role's image."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TextIO

from torchx._projects.entry import Entry, announce
from torchx._projects.tree import scan
from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError, UnsupportedRequest
from torchx.specs.api import AppDef, CfgVal, Role, Workspace, runopts
from torchx.workspace._image_recipe import (
    AUTO,
    DEFAULT_DOCKERFILE,
    REGISTRY,
    TORCHX_DOCKERFILE,
    has_dockerfile,
    image_builder,
    image_opts,
    image_repo,
    with_dockerfile,
)
from torchx.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from torchx.workspace._registry._plan import Plan

__all__ = ["DEFAULT_DOCKERFILE", "TORCHX_DOCKERFILE", "DockerWorkspaceMixin", "print_push_events"]

logger = get_logger(__name__)

_Build = Callable[[str, "Workspace | str", list[Entry], Mapping[str, CfgVal]], str]

_LOCAL_ID = "sha256:"


class _NoImageRepo(InvalidInput, KeyError):
    """There is no repository to push to; older callers catch the second base class."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Images:
    """Built images, by name."""

    __slots__ = ("plans", "pushed", "quiet")

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.pushed: dict[str, str] = {}
        """Names by digest."""
        self.quiet: set[str] = set()
        """Names of images whose push is not shown."""


class DockerWorkspaceMixin(WorkspaceMixin[dict[str, tuple[str, str]]]):
    """Builds an image with the workspace, and pushes it to ``image_repo``.

    ``Dockerfile.torchx`` in the root of the workspace says how; it gets the role's image as the
    argument ``IMAGE``, and the workspace's path as ``WORKSPACE``. Without one, the workspace is
    copied into the image's working directory.

    Args:
        docker_client: client of the Docker SDK; ``None`` connects on first use to the daemon that
            the environment names.
    """

    LABEL_VERSION: str = "torchx.pytorch.org/version"

    _runs_elsewhere: bool = True
    """True where jobs take their images from a registry, so that all are pushed."""

    def __init__(self, *args: Any, docker_client: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__client = docker_client
        self.__client_is_own = docker_client is None

    # of the class, for schedulers that are made without `__init__` (NeMo-Run)
    __client: Any = None
    __client_is_own = True

    @property
    def __images(self) -> "_Images":
        images: _Images = vars(self).setdefault("_known_images", _Images())
        return images

    @property
    def _docker_client(self) -> Any:
        if self.__client is None:
            from torchx._docker import connect

            self.__client = connect()
        return self.__client

    def workspace_opts(self) -> runopts:
        """Options: the repository of images, their builder, and how much is shown."""
        return image_opts(self._runs_elsewhere)

    def check_workspace_opts(self, cfg: Mapping[str, CfgVal]) -> None:
        """Refuses a repository that is none, and a builder that there is not."""
        image_repo(cfg)
        image_builder(cfg)

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

        An image that was made without a daemon has its name, by digest, already.

        Returns:
            The images to push, each with the repository and tag to push it as.

        Raises:
            KeyError: if there is an image to push and no ``image_repo``.
        """
        images = self.planned_images(app)
        for role in app.roles:
            if not role.image.startswith(_LOCAL_ID):
                continue
            repository = image_repo(cfg)
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
            quiet = self.__images.quiet
            (quiet.add if cfg.get("quiet") else quiet.discard)(role.image)
        return images

    def planned_images(self, app: AppDef) -> dict[str, tuple[str, str]]:
        """Images of roles that are made in a registry: repository and tag of each, by its name."""
        plans = [self._find_plan(role.image) for role in app.roles]
        return {plan.image: (plan.repository, plan.tag) for plan in plans if plan is not None}

    def push_images(self, images_to_push: dict[str, tuple[str, str]]) -> None:
        """Pushes local images; ``pushed_image`` knows their digests afterwards.

        Raises:
            RuntimeError: if the registry refuses the daemon, or keeps failing.
            TorchXError: the same for an image that was made without a daemon.
        """
        from torchx.workspace import _docker

        for image, (repository, tag) in images_to_push.items():
            if not image.startswith(_LOCAL_ID):
                self._push_plan(image)
                continue
            name = f"{repository}:{tag}"
            quiet = name in self.__images.quiet
            digest = _docker.push(self._docker_client, image, repository, tag, quiet=quiet)
            if digest:
                self.__images.pushed[name] = f"{repository}@{digest}"
                short = {"calm_text": f"pushed image `{repository}:{tag[:12]}`"}
                text = "pushed `%s:%s` as `%s@%s`"
                logger.info(text, repository, tag, repository, digest, extra=short)

    def pushed_image(self, image: str) -> str:
        """The name by digest of an image that was pushed, any other one as it is.

        For what is submitted: a tag can be moved to another image, a digest cannot.
        """
        return self.__images.pushed.get(image, image)

    def close(self) -> None:
        """Ends the connection to the daemon, and closes the scheduler."""
        if self.__client_is_own and self.__client is not None:
            self.__client.close()
            self.__client = None
        close = getattr(super(), "close", None)
        if close is not None:
            close()

    def _build(self, role: Role, workspace: Workspace | str, cfg: Mapping[str, CfgVal]) -> str:
        self.check_workspace_opts(cfg)
        entries = scan(workspace)
        build = self._choose_builder(role.image, entries, cfg)
        return build(role.image, workspace, entries, cfg)

    def _choose_builder(
        self, image: str, entries: Sequence[Entry], cfg: Mapping[str, CfgVal]
    ) -> _Build:
        """The builder: called with image, workspace, entries and cfg it gives the new image.

        Raises:
            InvalidInput: if what ``image_builder`` names cannot build this.
        """
        choice = image_builder(cfg)
        if choice == REGISTRY:
            self._check_registry_can(image, entries, cfg)
            return self._build_in_registry
        if (
            choice == AUTO
            and self._runs_elsewhere
            and image_repo(cfg)
            and image
            and not image.startswith(_LOCAL_ID)
            and not has_dockerfile(entries)
        ):
            return self._build_in_registry
        return self._build_with_docker

    def _check_registry_can(
        self, image: str, entries: Sequence[Entry], cfg: Mapping[str, CfgVal]
    ) -> None:
        if has_dockerfile(entries):
            why = f"the workspace has a {TORCHX_DOCKERFILE}, which only a daemon can carry out"
        elif not image:
            why = "the role has no image to add the workspace to"
        elif not image_repo(cfg):
            why = "it needs the option `image_repo`: the repository that images are put into"
        else:
            return
        msg = f"`image_builder=registry` is not possible: {why}; change that, or leave it out"
        raise InvalidInput(msg)

    def _build_in_registry(
        self,
        image: str,
        workspace: Workspace | str,
        entries: list[Entry],
        cfg: Mapping[str, CfgVal],
    ) -> str:
        from torchx.workspace._registry._build import find_base, plan_image
        from torchx.workspace._registry._reference import parse_repository

        repository = image_repo(cfg) or ""
        parse_repository(repository)
        try:
            base = find_base(image)
        except (BackendUnavailable, InvalidInput, UnsupportedRequest) as err:
            return self._build_after(err, image, workspace, entries, cfg)
        announce(entries, workspace, "packing")
        contents = sorted(with_dockerfile(entries), key=lambda entry: entry.path)
        try:
            plan = plan_image(base, workspace, contents, repository)
        except UnsupportedRequest as err:  # of one of the image's layers
            return self._build_after(err, image, workspace, entries, cfg)
        self.__images.plans[plan.image] = plan
        return plan.image

    def _build_after(
        self,
        err: TorchXError,
        image: str,
        workspace: Workspace | str,
        entries: list[Entry],
        cfg: Mapping[str, CfgVal],
    ) -> str:
        """Builds with Docker after the registry path failed.

        Raises:
            TorchXError: ``err``, where the registry path was asked for or no daemon can do better.
        """
        if cfg.get("image_builder") == REGISTRY or not self._daemon_may_help(image, err):
            raise err
        logger.info("building with Docker, as the registry cannot be used: %s", err)
        return self._build_with_docker(image, workspace, entries, cfg)

    def _daemon_may_help(self, image: str, err: TorchXError) -> bool:
        """True if a daemon answers, and has the image unless it is one that it could pull."""
        from torchx.workspace import _docker

        try:
            client = self._docker_client
            return isinstance(err, UnsupportedRequest) or bool(_docker.image_id(client, image))
        except (ModuleNotFoundError, TorchXError):
            return False

    def _find_plan(self, image: str) -> "Plan | None":
        """The plan of an image that was built, by this or another process, and not pushed yet."""
        if image in self.__images.plans or "@" not in image:
            return self.__images.plans.get(image)
        from torchx.workspace._registry._plan import find_plan

        return find_plan(image)

    def _push_plan(self, image: str) -> None:
        from torchx.workspace._registry._build import push_image

        plan = self._find_plan(image)
        if plan is None:
            msg = f"what the image `{image}` is made of is not on this machine; build it again"
            raise InvalidInput(msg)
        push_image(plan)

    def _build_with_docker(
        self,
        image: str,
        workspace: Workspace | str,
        entries: list[Entry],
        cfg: Mapping[str, CfgVal],
    ) -> str:
        from torchx.workspace._daemon_build import DaemonBuilder

        quiet = bool(cfg.get("quiet"))
        builder = DaemonBuilder(self._docker_client, label=self.LABEL_VERSION, quiet=quiet)
        return builder.build(image, workspace, entries)


def print_push_events(events: Iterable[Mapping[str, Any]], stream: TextIO | None = None) -> None:
    """Shows the progress of a push: a line for each layer.

    Args:
        events: of the Docker daemon, decoded.
        stream: ``None`` is stderr. Lines are updated in place only on a terminal.

    Raises:
        RuntimeError: if an event has an error.
    """
    from torchx._docker import show

    show(events, stream or sys.stderr, "push")


def _build_context(img: str, workspace: str) -> IO[bytes]:
    """Returns the build context of a workspace, as a file that is generated while it is read."""
    from torchx.workspace._tar import TarFile

    context: Any = TarFile(with_dockerfile(scan(workspace)))
    opened: IO[bytes] = context  # the caller closes it
    return opened
