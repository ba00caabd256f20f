"""The display of progress: each step of a long operation replaces the one before."""

from collections.abc import Callable

from torchx._startup.lazy_logger import configure_now

Display = Callable[[str], object]
"""Shows a step, which goes away with the next one or by itself."""


class _Chosen:
    display: "Display | None" = None


def show_on(display: "Display | None") -> None:
    """Sets the display of steps; with ``None`` each caller shows its steps itself."""
    _Chosen.display = display


def display() -> "Display | None":
    """Returns the display of steps; ``None`` if none is set."""
    configure_now()  # that is chosen with the handler of records
    return _Chosen.display


class Tally:
    """Counts the layers of an image in transfer, and their bytes.

    Args:
        doing: description of the transfer.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._layers: dict[str, tuple[int, int]] = {}
        self._done: set[str] = set()

    @property
    def bytes_moved(self) -> int:
        """Bytes of all layers together."""
        return sum(there for there, _ in self._layers.values())

    def note(self, layer: str, there: int | None = None, size: int | None = None) -> None:
        """Records a layer, and how many of its bytes have arrived."""
        before = self._layers.get(layer, (0, 0))
        self._layers[layer] = (
            before[0] if there is None else there,
            before[1] if size is None else size,
        )

    def finish(self, layer: str) -> None:
        """Records that the layer is complete."""
        size = self._layers.get(layer, (0, 0))[1]
        self.note(layer, size)
        self._done.add(layer)

    def __str__(self) -> str:
        if not self._layers:
            return self._doing
        text = f"{self._doing}: {len(self._done)}/{len(self._layers)} layers"
        size = sum(size for _, size in self._layers.values())
        return f"{text}, {bytes_text(self.bytes_moved)} of {bytes_text(size)}" if size else text


def bytes_text(size: int) -> str:
    """Formats a size like registries and Docker do.

    >>> bytes_text(200), bytes_text(81_234), bytes_text(4_500_000), bytes_text(3_500_000_000)
    ('200 B', '81 kB', '4.5 MB', '3.5 GB')
    """
    for unit, length in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= length:
            number = size / length
            return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    return f"{size} B"
