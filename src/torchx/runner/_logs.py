"""The runner's methods that read the logs of apps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchx.errors import UnsupportedRequest
from torchx.runner import _prepare
from torchx.runner._calls import recorded_call
from torchx.runner._session import Session, method_of
from torchx.schedulers.api import one_look
from torchx.specs.api import AppHandle, UnknownAppException

if TYPE_CHECKING:
    from datetime import datetime

    from torchx.schedulers.api import LogBlock, LogReport, Stream


class LogVerbs(Session):
    """Lines of replicas, one at a time or merged."""

    def log_lines(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: "Stream | None" = None,
    ) -> Iterable[str]:
        """Yields the lines of one replica, with their newlines.

        Args:
            k: index of the replica (node), not of a worker in it.
            regex: yield only lines in which it is found.
            should_tail: follow the output until the app ends.

        Raises:
            UnknownAppException: at the call, if the scheduler does not know the app.
        """
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("log_lines", backend, app_id), one_look():
            self._check_known(app_handle)
            return scheduler.log_iter(
                app_id, role_name, k, regex, since, until, should_tail, streams=streams
            )

    def log_blocks(
        self,
        app_handle: AppHandle,
        replicas: Sequence[tuple[str, int]] | None = None,
        *,
        regex: str | None = None,
        since: "datetime | None" = None,
        until: "datetime | None" = None,
        should_tail: bool = False,
        streams: "Stream | None" = None,
        attempt: int | None = None,
        tail_lines: int | None = None,
    ) -> "Iterator[LogBlock]":
        """Yields the output of several replicas (role and index; all for ``None``), ordered by
        time.

        Args:
            tail_lines: yield only that many of the last lines of each replica, and later ones.

        Raises:
            UnknownAppException: at the call, if the scheduler does not know the app.
            UnsupportedRequest: at the call, if the scheduler cannot merge logs, or cannot read the
                last lines alone.
        """
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("log_blocks", backend, app_id), one_look():
            self._check_known(app_handle)
            read = method_of(scheduler, "log_blocks", backend)
            # schedulers of other packages may not accept it
            more = {} if tail_lines is None else {"tail_lines": tail_lines}
            if more and not _prepare.takes_args(read, app_id, **more):
                msg = f"`{backend}` cannot read the last lines alone: leave out `tail_lines`"
                raise UnsupportedRequest(msg)
            blocks: Iterator[LogBlock] = read(
                app_id,
                replicas,
                regex=regex,
                since=since,
                until=until,
                should_tail=should_tail,
                streams=streams,
                attempt=attempt,
                **more,
            )
            return blocks

    def verify_logs(
        self, app_handle: AppHandle, replicas: Sequence[tuple[str, int]] | None = None
    ) -> "Sequence[LogReport]":
        """Returns how many lines each replica wrote and whether any are missing from the logs.

        Raises:
            UnknownAppException: if the scheduler does not know the app.
            UnsupportedRequest: if the scheduler cannot tell.
        """
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("verify_logs", backend, app_id), one_look():
            self._check_known(app_handle)
            reports: Sequence[LogReport] = method_of(scheduler, "verify_logs", backend)(
                app_id, replicas
            )
            return reports

    def _check_known(self, app_handle: AppHandle) -> None:
        if self.status(app_handle) is None:
            raise UnknownAppException(app_handle)
