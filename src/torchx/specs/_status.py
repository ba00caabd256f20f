"""The status of an app and its replicas."""

from typing import Any

from torchx._startup.dataclass import asdict, field, light_dataclass
from torchx.errors import AppStatusError
from torchx.specs._constants import NONE
from torchx.specs._state import AppState, ReplicaState, is_terminal


@light_dataclass
class ReplicaStatus:
    """Status of one replica.

    Args:
        id: index of the replica in its role.
        structured_error_msg: JSON, or any text; ``<NONE>`` if the replica reported no error.
        hostaddr: ``None`` means the host's name.
    """

    id: int
    state: ReplicaState
    role: str
    hostname: str
    structured_error_msg: str = NONE
    hostaddr: str | None = None

    def __post_init__(self) -> None:
        if self.hostaddr is None:
            self.hostaddr = self.hostname


@light_dataclass
class RoleStatus:
    """Statuses of the replicas of a role."""

    role: str
    replicas: list[ReplicaStatus]

    def to_json(self) -> dict[str, Any]:
        """Returns plain data; a replica's state is the enum, which JSON writes as a number."""
        return {"role": self.role, "replicas": [asdict(replica) for replica in self.replicas]}


@light_dataclass
class AppStatus:
    """Status of an app.

    Args:
        num_restarts: retries so far; -1 where the scheduler does not tell.
        structured_error_msg: JSON of the first failure; ``<NONE>`` if there is none.
        ui_url: page of the app in the scheduler's interface; ``None`` if it has none.
        roles: replicas of the latest retry only.
    """

    state: AppState
    num_restarts: int = 0
    msg: str = ""
    structured_error_msg: str = NONE
    ui_url: str | None = None
    roles: list[RoleStatus] = field(default_factory=list)

    def is_terminal(self) -> bool:
        """Returns True if the state is final."""
        return is_terminal(self.state)

    def raise_for_status(self) -> None:
        """Raises ``AppStatusError`` unless the app succeeded."""
        if self.state != AppState.SUCCEEDED:
            raise AppStatusError(self, f"job did not succeed: {self!r}")

    def filtered(self, filter_roles: list[str] | None) -> list[RoleStatus]:
        """Returns the roles of these names; all for ``None`` or an empty list."""
        return [r for r in self.roles if not filter_roles or r.role in filter_roles]

    def to_json(self, filter_roles: list[str] | None = None) -> dict[str, Any]:
        """Returns plain data."""
        return {
            "state": str(self.state),
            "num_restarts": self.num_restarts,
            "roles": [role.to_json() for role in self.filtered(filter_roles)],
            "msg": self.msg,
            "structured_error_msg": self.structured_error_msg,
            "url": self.ui_url,
        }

    def format(self, filter_roles: list[str] | None = None) -> str:
        """Returns the status as text for people."""
        from torchx.specs._status_text import format_status

        return format_status(self, filter_roles)

    def __repr__(self) -> str:
        from torchx.specs._status_text import dump_status

        return dump_status(self)
