"""The pictures of terminals: how they are drawn, and that pages show them."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from terminal_svg import Span, screen, to_svg  # noqa: E402  the path comes first

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def test_colours_become_classes() -> None:
    assert screen("\033[31m✗\033[0m a \033[1mb\033[0m\n\033[2;36mc") == [
        [Span("✗", ("c31",)), Span(" a "), Span("b", ("b",))],
        [Span("c", ("d", "c36"))],
    ]


def test_what_was_written_over_is_gone() -> None:
    assert screen("\r\033[Kstep 1\r\033[Kstep 2\r\033[Kbuilt\nnext") == [
        [Span("built")],
        [Span("next")],
    ]


def test_a_picture_holds_what_was_on_the_screen() -> None:
    svg = to_svg("a < b & c\n\033[32mok\033[0m", "a title", columns=10)
    root = ElementTree.fromstring(svg)
    texts = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text")]
    assert texts == ["a < b & c", "ok"]
    assert root.attrib["aria-label"] == "a title"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_every_picture_has_colours_for_light_and_for_dark_pages(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    light, dark = text[: text.index("</style>")].split("@media (prefers-color-scheme: dark)")
    for name in {name for names in re.findall(r' class="([^"]+)"', text) for name in names.split()}:
        assert f".{name} " in light or f".{name}," in light
        assert f".{name} " in dark or f".{name}," in dark or name == "b"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_every_picture_is_drawn_whole(path: Path) -> None:
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert any(node.tag.endswith("}text") for node in root.iter())


def test_pages_show_all_pictures_that_there_are() -> None:
    shown = set()
    for page in (ROOT / "docs").rglob("*.md"):
        shown |= set(re.findall(r"pictures/([\w-]+)\.svg\)", page.read_text(encoding="utf-8")))
    assert shown == {path.stem for path in PICTURES}
