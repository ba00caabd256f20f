"""Finds what schedulers would refuse, drop or change of an app."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx.errors import TorchXError, UnsupportedRequest
from torchx.runner import _prepare
from torchx.schedulers._core.portability import DROPPED, REFUSED, Finding, probe
from torchx.schedulers.api import resolve_cfg
from torchx.specs.api import AppDef, CfgVal

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler

_ASKS_A_SERVER = "validate_spec"
"""The option that makes a dry run query a server, which is not done for each of many requests."""


def findings(
    scheduler: "Scheduler[Any]", app: AppDef, cfg: "Mapping[str, CfgVal] | None"
) -> list[Finding]:
    """Returns what the scheduler would refuse, drop or change; builds requests, submits nothing."""
    try:
        resolved: Any = resolve_cfg(scheduler.run_opts(), cfg)
    except TorchXError as err:
        return [Finding(REFUSED, "", "", str(err))]
    if isinstance(resolved, Mapping) and _ASKS_A_SERVER in resolved:
        resolved = {**resolved, _ASKS_A_SERVER: False}

    def build(changed: AppDef) -> str:
        own = _prepare.own_copy(changed)
        for role in own.roles:
            _prepare.check_role(role)
        scheduler._pre_build_validate(own, scheduler.backend, resolved)
        if _prepare.takes_args(scheduler._validate, own, scheduler.backend, resolved):
            scheduler._validate(own, scheduler.backend, resolved)
        return str(scheduler.submit_dryrun(own, resolved))

    features = getattr(scheduler, "features", None)
    with _quiet():
        return probe(app, features, build)


def check_strict(
    scheduler: "Scheduler[Any]", app: AppDef, cfg: "Mapping[str, CfgVal] | None", name: str
) -> None:
    """Refuses an app of which the scheduler would drop something.

    Raises:
        UnsupportedRequest: naming all that would be dropped.
    """
    dropped = [str(found) for found in findings(scheduler, app, cfg) if found.kind == DROPPED]
    if dropped:
        msg = f"`{name}` would drop {'; '.join(dropped)}: leave that out, or turn `strict` off"
        raise UnsupportedRequest(msg)


@contextmanager
def _quiet() -> Iterator[None]:
    """Mutes the warnings of dry runs, which would be repeated for each request."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
