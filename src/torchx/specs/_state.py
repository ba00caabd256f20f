"""States of apps and replicas, and retry policies."""

from enum import Enum


class RetryPolicy(str, Enum):
    """The scope of a retry after a replica fails. Every scheduler supports ``APPLICATION``."""

    REPLICA = "REPLICA"
    """The replica alone."""
    APPLICATION = "APPLICATION"
    """The whole app."""
    ROLE = "ROLE"
    """All replicas of the role."""
    HOT_SPARE = "APPLICATION"  # noqa: PIE796 - an alias on purpose
    """Name of release 0.7 for ``APPLICATION``: no scheduler keeps machines in reserve."""


class AppState(int, Enum):
    """State of an app or a replica, ordered: all above ``RUNNING`` have ended or are unknown."""

    UNSUBMITTED = 0
    SUBMITTED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    UNKNOWN = 7

    def __str__(self) -> str:
        return self._name_  # `name` is a property that is three times slower

    def __repr__(self) -> str:
        return f"{self.name} ({self.value})"

    def __format__(self, format_spec: str) -> str:
        return format(self.name, format_spec)


ReplicaState = AppState


def is_terminal(state: AppState) -> bool:
    """Returns True if the state is final.

    >>> is_terminal(AppState.RUNNING)
    False
    """
    return state in (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)


def is_started(state: AppState) -> bool:
    """Returns True if the app has started, also if it has ended since."""
    return state == AppState.RUNNING or is_terminal(state)
