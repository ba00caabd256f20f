"""The interface of schedulers that build workspaces."""

import abc
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from torchx._startup.dataclass import light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs.api import AppDef, CfgVal, Role, Workspace, runopts

__all__ = [
    "TORCHX_IGNORE",
    "MultiWorkspaceMixin",
    "PkgInfo",
    "WorkspaceBuilder",
    "WorkspaceMixin",
    "pin_workspace_images",
    "walk_workspace",
]

TORCHX_IGNORE = ".torchxignore"

T = TypeVar("T")
PackageType = TypeVar("PackageType")
WorkspaceConfigType = TypeVar("WorkspaceConfigType")

logger = get_logger(__name__)


class WorkspaceMixin(abc.ABC, Generic[T]):
    """Builds the workspaces of roles into their images.

    List it before ``Scheduler`` among the bases. ``T`` is the type that ``dryrun_push_images``
    returns for ``push_images``; ``None`` for a builder without a push step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def workspace_opts(self) -> runopts:
        """Returns the options of the builder, which are added to those of the scheduler."""
        return runopts()

    def check_workspace_opts(self, cfg: Mapping[str, CfgVal]) -> None:
        """Refuses values that the builder cannot use, even if no role has a workspace.

        Raises:
            InvalidInput: for such a value.
        """

    def build_workspaces(self, roles: list[Role], cfg: Mapping[str, CfgVal]) -> None:
        """Builds the workspace of every role that has one; changes these roles in place."""
        build_cache: dict[object, object] = {}
        for role in roles:
            if not role.workspace:
                continue
            before = role.image
            self.caching_build_workspace_and_update_role(role, cfg, build_cache)
            if role.image != before:
                logger.info(
                    "role `%s`: built workspace `%s` on image `%s` into image `%s`",
                    role.name,
                    role.workspace,
                    before,
                    role.image,
                    extra={"calm_text": _in_short(role)},
                )

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Builds the workspace of one role. Override this.

        Args:
            build_cache: shared by the roles of one ``build_workspaces`` call and by nothing
                else; keys and values are the builder's own, ``(image, workspace)`` is a good key.
        """
        workspace = role.workspace
        if not workspace:
            return
        if workspace.is_unmapped_single_project():
            self.build_workspace_and_update_role(role, str(workspace), cfg)
            return
        import tempfile

        with tempfile.TemporaryDirectory(suffix="torchx_workspace_") as merged:
            workspace.merge_into(merged)
            self.build_workspace_and_update_role(role, merged, cfg)

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Builds one directory for one role; older builders override this."""
        msg = (
            f"`{type(self).__qualname__}` does not build workspaces, override "
            "`caching_build_workspace_and_update_role`"
        )
        raise NotImplementedError(msg)

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> T:
        """Sets the remote names of local images in ``app``; returns the images to push."""
        msg = f"`{type(self).__qualname__}` does not push images"
        raise NotImplementedError(msg)

    def push_images(self, images_to_push: T) -> None:
        """Pushes what ``dryrun_push_images`` returned."""
        msg = f"`{type(self).__qualname__}` does not push images"
        raise NotImplementedError(msg)

    def pushed_image(self, image: str) -> str:
        """Returns the name to submit for a role's image after ``push_images``."""
        return image


class MultiWorkspaceMixin(WorkspaceMixin[tuple[str, Any]]):
    """Lets the user choose among several builders with the option ``workspace_type``."""

    WORKSPACE_TYPE_OPT = "workspace_type"

    @abc.abstractmethod
    def workspace_builders(self) -> "Mapping[str, WorkspaceMixin[Any]]":
        """Returns the builders by name, the default one first; always the same instances."""

    def workspace_opts(self) -> runopts:
        """Returns the option that chooses the builder, and the options of all builders.

        Raises:
            ValueError: if there are no builders.
        """
        builders = self._builders()
        opts = runopts()
        opts.add(
            self.WORKSPACE_TYPE_OPT,
            type_=str,
            default=next(iter(builders)),
            help=f"what builds the workspace, one of: {', '.join(builders)}",
        )
        for builder in builders.values():
            opts.update(builder.workspace_opts())
        return opts

    def check_workspace_opts(self, cfg: Mapping[str, CfgVal]) -> None:
        """Checks the choice of the builder, and the options of all of them."""
        self.workspace_builder(cfg)
        for builder in self._builders().values():
            builder.check_workspace_opts(cfg)

    def workspace_builder(self, cfg: Mapping[str, CfgVal]) -> "tuple[str, WorkspaceMixin[Any]]":
        """Returns the name and the builder that ``cfg`` chooses.

        Raises:
            ValueError: if there is none of that name.
        """
        builders = self._builders()
        name = cfg.get(self.WORKSPACE_TYPE_OPT)
        if name is None:
            name = next(iter(builders))
        if not isinstance(name, str) or name not in builders:
            msg = (
                f"`{self.WORKSPACE_TYPE_OPT}` is `{name}`, which is no workspace builder; use one"
                f" of: {', '.join(builders)}"
            )
            raise InvalidInput(msg)
        return name, builders[name]

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Builds with the chosen builder."""
        _, builder = self.workspace_builder(cfg)
        builder.caching_build_workspace_and_update_role(role, cfg, build_cache)

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> tuple[str, Any]:
        """Returns the chosen builder's name, and its images; ``None`` if it does not push."""
        name, builder = self.workspace_builder(cfg)
        if type(builder).dryrun_push_images is WorkspaceMixin.dryrun_push_images:
            return name, None
        return name, builder.dryrun_push_images(app, cfg)

    def push_images(self, images_to_push: tuple[str, Any]) -> None:
        """Pushes with the builder that was chosen before; ``None`` is nothing to push."""
        name, images = images_to_push
        if images is not None:
            self.workspace_builder({self.WORKSPACE_TYPE_OPT: name})[1].push_images(images)

    def _builders(self) -> "Mapping[str, WorkspaceMixin[Any]]":
        builders = self.workspace_builders()
        if not builders:
            msg = f"`{type(self).__qualname__}.workspace_builders` gives no builders"
            raise InvalidInput(msg)
        return builders


def walk_workspace(
    fs: Any, path: str, ignore_name: str = TORCHX_IGNORE
) -> "Iterator[tuple[str, list[str], dict[str, Mapping[str, Any]]]]":
    """Yields every folder of a workspace as ``(path, names of folders, files)``, like ``os.walk``.

    A path that does not exist has no folders. One that is a file gives its folder as if the file
    were there under an empty name.

    Args:
        fs: fsspec file system.
        path: of the workspace on it.
        ignore_name: ignore file in the root of the workspace. If the default one is missing,
            ``.dockerignore`` is used.

    Yields:
        Files map names to information: ``name`` is the full path, ``size`` is in bytes, and
        ``mode`` is set if the file system has modes. Links are files with ``islink``.

    Raises:
        InvalidInput: if the ignore file has a malformed pattern.
    """
    from torchx._projects.listing import walk

    return walk(fs, path, ignore_name)


def pin_workspace_images(app: AppDef, images: Mapping[tuple[str, Workspace], str]) -> None:
    """Replaces the workspaces of roles by the images that ``Runner.build_workspace`` built."""
    for role in app.roles:
        if not role.workspace:
            continue
        built = images.get((role.image, role.workspace))
        if built is not None:
            role.image = built
            role.workspace = None


@light_dataclass
class PkgInfo(Generic[PackageType]):
    """Deprecated: the result of a ``WorkspaceBuilder``.

    Args:
        img: the image.
        lazy_overrides: attributes of the role that are known later.
        metadata: anything else about the image.
    """

    img: PackageType
    lazy_overrides: dict[str, Any]
    metadata: PackageType

    def __post_init__(self) -> None:
        _warn_deprecated(type(self).__name__, stacklevel=4)  # `__init__` is in between


class WorkspaceBuilder(abc.ABC, Generic[PackageType, WorkspaceConfigType]):
    """Deprecated: builds one workspace from its configuration. Use ``WorkspaceMixin``."""

    def __init__(self, cfg: WorkspaceConfigType) -> None:
        _warn_deprecated(type(self).__name__, stacklevel=3)
        self.cfg = cfg

    @abc.abstractmethod
    def build_workspace(self, sync: bool = True) -> "PkgInfo[PackageType]":
        """Builds the workspace; with ``sync`` it is ready when the call returns."""


def _warn_deprecated(name: str, stacklevel: int) -> None:
    import warnings

    msg = f"`{name}` is deprecated, write a `torchx.workspace.WorkspaceMixin` instead"
    warnings.warn(msg, FutureWarning, stacklevel=stacklevel)


def _in_short(role: Role) -> str:
    name, _, digest = role.image.rpartition("sha256:")
    image = f"{name}{digest[:12]}" if digest else role.image
    return f"workspace of role `{role.name}` is in image {image}"
