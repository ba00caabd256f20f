"""The record of a job's request, written when it was submitted."""

from typing import Any

from torchx.specs.api import AppDef

from ._images import ReplicaParam
from ._request import COMBINED_LOG, STDERR_LOG, STDOUT_LOG, PopenRequest
from ._supervise.format import attempt_dir

ERROR_FILE_ENV = "TORCHELASTIC_ERROR_FILE"
ERROR_FILE = "error.json"
_TEXTS = ("name", "session", "host", "log_dir")


class JobRecord:
    """The content of ``job.json``, read once.

    Args:
        path: folder of the record.
        data: content of the file; anything but a complete record counts as damaged.
    """

    def __init__(self, app_id: str, path: str, data: object) -> None:
        self.app_id = app_id
        self.path = path
        self.damage = _damage(path, data)
        """The damage of the record; empty if there is none."""
        known: dict[str, Any] = dict(data) if isinstance(data, dict) and not self.damage else {}
        self.data = known
        self.name = str(known.get("name", ""))
        self.session = str(known.get("session", ""))
        self.host = str(known.get("host", ""))
        self.boot_id = str(known.get("boot_id", ""))
        self.log_dir = str(known.get("log_dir", ""))
        self.own_logs = bool(known.get("own_logs"))
        """True if the logs are in the default folder, and are removed with the record."""
        self.grace_s = float(known.get("grace_s", 0))
        self.created_ns = int(known.get("created_ns", 0))
        self.ends_on_failure = bool(known.get("ends_on_failure"))
        self.roles: list[tuple[str, int]] = [
            (str(role["name"]), len(role["dirs"])) for role in known.get("roles", ())
        ]
        """Name and number of replicas of each role."""

    def replica_dir(self, role: int, k: int) -> str:
        """Returns the log folder of the first attempt."""
        return str(self.data["roles"][role]["dirs"][k])

    def error_file(self, role: int, k: int, attempt: int) -> str | None:
        """Returns the error file of a replica's attempt; ``None`` if there is none."""
        spec: dict[str, Any] = self.data["roles"][role]
        env: dict[str, str] = spec["env"]
        different = spec["vary"].get(str(k))
        path = (different[1] if different else env).get(ERROR_FILE_ENV, env.get(ERROR_FILE_ENV))
        folder = self.replica_dir(role, k)
        if path == f"{folder}/{ERROR_FILE}" and attempt:
            return f"{attempt_dir(folder, attempt)}/{ERROR_FILE}"
        return path

    def app(self) -> AppDef | None:
        """The submitted app; ``None`` if the request was built by hand."""
        from torchx.specs._serialize import app_from_json

        data = self.data.get("app")
        try:
            return app_from_json(data) if data else None
        except (KeyError, TypeError, ValueError, AttributeError):  # damaged, or of a newer version
            return None

    def request(self) -> PopenRequest:
        """Returns the submitted request."""
        request = PopenRequest(self.app_id, self.log_dir, {}, {})
        for role in self.data.get("roles", ()):
            request.role_log_dirs[role["name"]] = role["dirs"]
            request.role_params[role["name"]] = [
                replica_param(role, k) for k in range(len(role["dirs"]))
            ]
        return request


def _damage(path: str, data: object) -> str:
    whole = (
        isinstance(data, dict)
        and all(isinstance(data.get(key), str) for key in _TEXTS)
        and isinstance(data.get("created_ns"), int)
        and isinstance(data.get("grace_s"), (int, float))
        and isinstance(data.get("roles"), list)
        and all(_whole_role(role) for role in data["roles"])
    )
    if whole:
        return ""
    return f"the record of this job in `{path}` is damaged; `torchx delete` removes it"


def _whole_role(role: object) -> bool:
    return (
        isinstance(role, dict)
        and isinstance(role.get("name"), str)
        and isinstance(role.get("dirs"), list)
        and isinstance(role.get("env"), dict)
        and isinstance(role.get("args"), list)
        and isinstance(role.get("vary"), dict)
    )


def replica_param(role: dict[str, Any], k: int) -> ReplicaParam:
    """Returns what a replica of a recorded role was started with."""
    folder = role["dirs"][k]
    args, env, gone, cwd = role["vary"].get(str(k), (None, {}, (), None))
    return ReplicaParam(
        list(args or role["args"]),
        {n: v for n, v in {**role["env"], **env}.items() if n not in gone},
        f"{folder}/{STDOUT_LOG}",
        f"{folder}/{STDERR_LOG}",
        f"{folder}/{COMBINED_LOG}",
        cwd or role["cwd"],
    )
