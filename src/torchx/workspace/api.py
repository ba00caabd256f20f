"""What a scheduler that builds workspaces mixes in."""

import abc
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from torchx._lazy_logger import get_logger
from torchx.specs.api import AppDef, CfgVal, Role, Workspace, runopts

TORCHX_IGNORE = ".torchxignore"

T = TypeVar("T")

logger = get_logger(__name__)


class WorkspaceMixin(abc.ABC, Generic[T]):
    """Builds the workspaces of roles into their images.

    List it before ``Scheduler`` among the bases. ``T`` is what ``dryrun_push_images`` hands to
    ``push_images``; ``None`` for a builder without a push step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def workspace_opts(self) -> runopts:
        """Options of the builder, offered beside those of the scheduler."""
        return runopts()

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
        """Builds one directory for one role: what older builders override."""
        msg = (
            f"`{type(self).__qualname__}` does not build workspaces, override "
            "`caching_build_workspace_and_update_role`"
        )
        raise NotImplementedError(msg)

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> T:
        """Puts the remote names of local images into ``app`` and returns what is to be pushed."""
        msg = f"`{type(self).__qualname__}` does not push images"
        raise NotImplementedError(msg)

    def push_images(self, images_to_push: T) -> None:
        """Pushes what ``dryrun_push_images`` returned."""
        msg = f"`{type(self).__qualname__}` does not push images"
        raise NotImplementedError(msg)


def pin_workspace_images(app: AppDef, images: Mapping[tuple[str, Workspace], str]) -> None:
    """Gives roles the images that ``Runner.build_workspace`` built instead of workspaces."""
    for role in app.roles:
        if not role.workspace:
            continue
        built = images.get((role.image, role.workspace))
        if built is not None:
            role.image = built
            role.workspace = None
