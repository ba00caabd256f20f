"""The request of a job as it was recorded when it was submitted."""

import os
from typing import Any

from torchx.specs.api import AppDef

from ._request import COMBINED_LOG, STDERR_LOG, STDOUT_LOG, PopenRequest, ReplicaParam
from ._states import JobView, parse_journal
from ._supervise.tree import attempt_dir

ERROR_FILE_ENV = "TORCHELASTIC_ERROR_FILE"
ERROR_FILE = "error.json"


class JobRecord:
    """What ``job.json`` holds, read once."""

    def __init__(self, path: str, data: "dict[str, Any]") -> None:
        self.path = path
        self.data = data

    def text(self, key: str) -> str:
        """A text field."""
        return str(self.data[key])

    @property
    def roles(self) -> "list[tuple[str, int]]":
        """Name and number of replicas of each role."""
        roles: list[dict[str, Any]] = self.data["roles"]
        return [(str(r["name"]), len(r["dirs"])) for r in roles]

    def replica_dir(self, role: int, k: int) -> str:
        """Folder of the logs of the first attempt."""
        roles: list[dict[str, list[str]]] = self.data["roles"]
        return roles[role]["dirs"][k]

    def error_file(self, role: int, k: int, attempt: int) -> str | None:
        """Where that attempt of a replica reports its failure; ``None`` if nowhere."""
        roles: list[dict[str, Any]] = self.data["roles"]
        spec = roles[role]
        env: dict[str, str] = spec["env"]
        vary: dict[str, list[dict[str, str]]] = spec["vary"]
        different = vary.get(str(k))
        path = (different[1] if different else env).get(ERROR_FILE_ENV, env.get(ERROR_FILE_ENV))
        default = os.path.join(self.replica_dir(role, k), ERROR_FILE)
        if path == default and attempt:
            return os.path.join(attempt_dir(self.replica_dir(role, k), attempt), ERROR_FILE)
        return path

    def view(self) -> JobView:
        """The state as the journal has it now."""
        try:
            with open(os.path.join(self.path, "journal"), "rb") as f:
                return parse_journal(f.read())
        except FileNotFoundError:
            return JobView()

    def app(self) -> AppDef | None:
        """The app that was submitted; ``None`` if the request was made by hand."""
        from torchx.specs._serialize import app_from_json

        data = self.data["app"]
        return app_from_json(data) if data else None

    def request(self) -> PopenRequest:
        """The request that was submitted."""
        log_dir = self.text("log_dir")
        request = PopenRequest(self.text("app_id"), log_dir, {}, {})
        roles: list[dict[str, Any]] = self.data["roles"]
        for role in roles:
            request.role_log_dirs[role["name"]] = role["dirs"]
            request.role_params[role["name"]] = [
                _param(role, k, folder) for k, folder in enumerate(role["dirs"])
            ]
        return request


def _param(role: dict[str, Any], k: int, folder: str) -> ReplicaParam:
    args, env, gone, cwd = role["vary"].get(str(k), (None, {}, (), None))
    return ReplicaParam(
        list(args or role["args"]),
        {n: v for n, v in {**role["env"], **env}.items() if n not in gone},
        os.path.join(folder, STDOUT_LOG),
        os.path.join(folder, STDERR_LOG),
        os.path.join(folder, COMBINED_LOG),
        cwd or role["cwd"],
    )
