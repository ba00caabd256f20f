"""TEMPORARY until torchx.workspace has MultiWorkspaceMixin."""

from collections.abc import Mapping
from typing import Any

from torchx.errors import InvalidInput
from torchx.specs.api import AppDef, CfgVal, Role, runopts
from torchx.workspace.api import WorkspaceMixin


class MultiWorkspaceMixin(WorkspaceMixin["tuple[str, Any] | None"]):
    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        raise NotImplementedError

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("workspace_type", type_=str, default="dir", help="workspace builder: dir, docker")
        return opts

    def workspace_builder(self, cfg: Mapping[str, CfgVal]) -> tuple[str, Any]:
        name = cfg.get("workspace_type") or "dir"
        if name not in ("dir", "docker"):
            msg = f"option `workspace_type` must be dir or docker, given: {name}"
            raise InvalidInput(msg)
        return str(name), None

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        return

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> tuple[str, Any]:
        return self.workspace_builder(cfg)[0], None

    def push_images(self, images_to_push: Any) -> None:
        return


def workspace_builders(docker_client: object) -> dict[str, WorkspaceMixin[Any]]:
    return {}
