"""A request that was built but not sent."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from torchx.specs._app import AppDef

T = TypeVar("T")


class AppDryRunInfo(Generic[T]):
    """The scheduler's native request; ``print(info)`` shows it in full.

    ``AppDryRunInfo[Request]`` and ``AppDryRunInfo[Request, Cfg]`` are both allowed.

    Args:
        request: what would be sent. It may be changed before it is scheduled.
        fmt: renders a request as text.
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self._fmt = fmt
        self.app: AppDef | None = None
        """The app that the request was built from; ``None`` if it was made by hand."""
        self.cfg: Mapping[str, Any] = {}
        """The scheduler's options, resolved."""
        self._scheduler: str | None = None

    def __class_getitem__(cls, params: Any) -> Any:
        # two parameters are published; type variables with defaults are not in Python 3.10
        first = params[0] if isinstance(params, tuple) else params
        return super().__class_getitem__(first)  # type: ignore[misc]  # of Generic

    @property
    def _app(self) -> "AppDef | None":
        """Name of ``app`` in release 0.7 (NeMo-Run reads and assigns it)."""
        return self.app

    @_app.setter
    def _app(self, app: "AppDef | None") -> None:
        self.app = app

    @property
    def _cfg(self) -> Mapping[str, Any]:
        """Name of ``cfg`` in release 0.7."""
        return self.cfg

    @_cfg.setter
    def _cfg(self, cfg: Mapping[str, Any]) -> None:
        self.cfg = cfg

    def __repr__(self) -> str:
        return self._fmt(self.request)
