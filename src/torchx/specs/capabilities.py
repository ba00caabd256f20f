"""Typed access to the capabilities of a resource."""

from typing import Generic, TypeVar, overload

from torchx._startup.dataclass import light_dataclass
from torchx.specs._resource import Resource

V = TypeVar("V")
D = TypeVar("D")


@light_dataclass(frozen=True)
class CapabilityKey(Generic[V]):
    """A key in ``Resource.capabilities`` whose values have one type.

    >>> vram = CapabilityKey("acme", "vram_gb", int)
    >>> r = Resource(cpu=1, gpu=1, memMB=1)
    >>> vram.set(r, 80)
    >>> r.capabilities
    {'acme.vram_gb': 80}
    """

    namespace: str
    name: str
    type: type[V]

    @property
    def key(self) -> str:
        """The key in the plain dict."""
        return f"{self.namespace}.{self.name}"

    def set(self, resource: Resource, value: V) -> None:
        """Stores the value in the resource."""
        resource.capabilities[self.key] = value

    @overload
    def get(self, resource: Resource) -> V | None: ...
    @overload
    def get(self, resource: Resource, default: D) -> V | D: ...
    def get(self, resource: Resource, default: D | None = None) -> V | D | None:
        """Returns the value, or the default if it is not set.

        Raises:
            TypeError: if the value has another type. A ``bool`` is not an ``int`` here.
        """
        if self.key not in resource.capabilities:
            return default
        value = resource.capabilities[self.key]
        wrong_bool = isinstance(value, bool) and self.type is int
        if wrong_bool or not isinstance(value, self.type):
            msg = (
                f"capability `{self.key}` expected `{self.type.__name__}`, "
                f"got `{type(value).__name__}`: {value!r}"
            )
            raise TypeError(msg)
        return value
