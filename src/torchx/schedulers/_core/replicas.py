"""Expands a role into replicas with their macros filled in, planned once for all."""

from collections.abc import Iterator
from typing import NamedTuple

from torchx.settings import ENV_TORCHX_RANK0_HOST
from torchx.specs._macros import MacroPlan
from torchx.specs.api import Role, macros


class Replica(NamedTuple):
    """A replica of a role. Its arguments and environment are its own and may be changed."""

    k: int
    args: list[str]
    env: dict[str, str]
    values: macros.Values
    """The values of macros, for other fields such as metadata."""


def expand(
    role: Role, app_id: str, *, rank0_env: str = "", img_root: str = ""
) -> Iterator[Replica]:
    """Yields the replicas of a role, in order. Texts with macros are found once.

    >>> role = Role("w", "img", args=["--id", macros.replica_id], num_replicas=2)
    >>> [replica.args for replica in expand(role, "job-1")]
    [['--id', '0'], ['--id', '1']]

    Args:
        rank0_env: name of the environment variable that holds the host of the first replica.
        img_root: root directory of the image.
    """
    plan = MacroPlan(role)
    for k in range(role.num_replicas):
        values = macros.Values(img_root, app_id, str(k), rank0_env)
        yield Replica(k, plan.args(values), plan.env(values), values)


def expand_with_first(role: Role, app_id: str, rank0_env: str, *, first: bool) -> Iterator[Replica]:
    """As ``expand``; the first replica of an app knows itself as ``TORCHX_RANK0_HOST``.

    Args:
        first: this is the first role of the app.
    """
    replicas = expand(role, app_id, rank0_env=rank0_env)
    if first:
        next(replicas)
        yield next(expand(role, app_id, rank0_env=ENV_TORCHX_RANK0_HOST))
    yield from replicas
