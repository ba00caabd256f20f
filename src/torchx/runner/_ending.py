"""The runner's methods that end apps."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import light_dataclass
from torchx.errors import TorchXError
from torchx.runner._calls import recorded_call
from torchx.runner._session import Session
from torchx.schedulers.api import Scheduler, one_look
from torchx.specs.api import AppHandle, AppState

if TYPE_CHECKING:
    from torchx.schedulers._core.many import Outcome
    from torchx.schedulers.api import AppSnapshot


@light_dataclass(frozen=True)
class Ended:
    """The outcome of cancelling or deleting one app."""

    app_handle: AppHandle
    before: AppState | None
    """State before the call; ``None`` if the app is unknown, or its state could not be read."""
    acted: bool
    """True if the scheduler accepted the request; False for a cancel of an app that has ended."""
    error: TorchXError | None


class EndingVerbs(Session):
    """Cancels and deletes apps."""

    def cancel(self, app_handle: AppHandle) -> None:
        """Requests the end of the app and does not wait for it; does nothing if it has ended."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("cancel", backend, app_id), one_look():
            status = self.status(app_handle)
            if status is not None and not status.is_terminal():
                scheduler.cancel(app_id)

    def delete(self, app_handle: AppHandle) -> None:
        """Removes the app from the scheduler, which ends it; does nothing if it is unknown."""
        scheduler, app_id, backend = self._find(app_handle)
        with recorded_call("delete", backend, app_id), one_look():
            if self.status(app_handle) is not None:
                scheduler.delete(app_id)
                from torchx._launches import note_deletion

                note_deletion(app_handle)

    def cancel_many(self, app_handles: Iterable[AppHandle]) -> "list[Ended]":
        """Requests the end of these apps, in as few calls as their schedulers allow.

        A failure does not keep other apps from being ended: errors are part of the results, which
        are in the order of the handles.

        Raises:
            InvalidInput: if one of them is not a handle, or its scheduler is unknown; nothing is
            done.
        """

        from torchx.schedulers._core.many import act_on

        def end(scheduler: "Scheduler[Any]", app_ids: Sequence[str]) -> "list[Outcome]":
            found = scheduler.look_many(app_ids)
            return act_on(app_ids, found, _runs, scheduler.end_many)

        return self._many("cancel", app_handles, end, self.cancel)

    def delete_many(self, app_handles: Iterable[AppHandle]) -> "list[Ended]":
        """Removes these apps, running ones as well; otherwise like ``cancel_many``."""
        from torchx.schedulers._core.many import act_on

        def remove(scheduler: "Scheduler[Any]", app_ids: Sequence[str]) -> "list[Outcome]":
            found = scheduler.look_many(app_ids)
            return act_on(app_ids, found, lambda _: True, scheduler.remove_many)

        ended = self._many("delete", app_handles, remove, self.delete)
        from torchx._launches import note_deletion

        for one in ended:
            if one.acted:
                note_deletion(one.app_handle)
        return ended

    def _many(
        self,
        verb: str,
        app_handles: Iterable[AppHandle],
        act: "Callable[[Scheduler[Any], Sequence[str]], list[Outcome]]",
        act_on_one: Callable[[AppHandle], None],
    ) -> "list[Ended]":
        groups: dict[str, dict[str, AppHandle]] = {}
        for handle in app_handles:
            _, app_id, backend = self._find(handle)
            groups.setdefault(backend, {}).setdefault(app_id, handle)
        ended: list[Ended] = []
        for backend, handles in groups.items():
            scheduler = self._scheduler(backend)
            with recorded_call(f"{verb}_many", backend), one_look():
                if _has_hooks(scheduler):
                    outcomes = _outcomes(act, scheduler, [*handles])
                    ended += [
                        Ended(handles[o.app_id], o.before, o.acted, o.error) for o in outcomes
                    ]
                else:
                    ended += [self._one(handle, act_on_one) for handle in handles.values()]
        return ended

    def _one(self, handle: AppHandle, act: Callable[[AppHandle], None]) -> "Ended":
        """Like ``_many``, for a scheduler of another package that may lack the hooks."""
        try:
            status = self.status(handle)
            if status is not None:
                act(handle)
        except TorchXError as err:
            return Ended(handle, None, False, err)
        return Ended(handle, None if status is None else status.state, status is not None, None)

    def stop(self, app_handle: AppHandle) -> None:
        """Deprecated name of ``cancel``."""
        import warnings

        warnings.warn(
            "This method will be deprecated in the future, please use `cancel` instead.",
            PendingDeprecationWarning,
            stacklevel=2,
        )
        self.cancel(app_handle)


def _runs(snapshot: "AppSnapshot") -> bool:
    return not snapshot.terminal


def _outcomes(
    act: "Callable[[Scheduler[Any], Sequence[str]], list[Outcome]]",
    scheduler: "Scheduler[Any]",
    app_ids: Sequence[str],
) -> "list[Outcome]":
    """Returns the outcomes for the apps of one scheduler, also if it cannot be reached."""
    from torchx.schedulers._core.many import Outcome

    try:
        return act(scheduler, app_ids)
    except TorchXError as err:
        return [Outcome(app_id, None, False, err) for app_id in app_ids]


def _has_hooks(scheduler: object) -> bool:
    """Returns False for schedulers of other packages that define the methods but no hooks."""
    if not isinstance(scheduler, Scheduler):
        return False
    cls = type(scheduler)
    return cls.look is not Scheduler.look and cls.end is not Scheduler.end
