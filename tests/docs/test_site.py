"""What the site has on every page beside its text."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"

for name in ("sphinx", "sphinx_copybutton", "sphinx_design"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[docs]'")


def settings(monkeypatch: pytest.MonkeyPatch, repository: str) -> dict[str, Any]:
    monkeypatch.setenv("TORCHX_REPOSITORY", repository)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the file adds to it
    return runpy.run_path(str(DOCS / "conf.py"))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://git.example.com/me/torchx.git", "https://git.example.com/me/torchx"),
        ("git@git.example.com:me/torchx.git", "https://git.example.com/me/torchx"),
        ("https://github.com/me/torchx/", "https://github.com/me/torchx"),
        ("/srv/git/torchx", ""),
    ],
)
def test_the_repository_is_linked_where_it_has_an_address(
    given: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = settings(monkeypatch, given)
    assert found["repository"] == url
    options = found["html_theme_options"]
    assert [icon["url"] for icon in options.get("footer_icons", [])] == ([url] if url else [])
    assert ("source_repository" in options) == ("github.com" in url)


def test_a_page_has_copy_buttons_tabs_and_the_repository(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "_ext").symlink_to(DOCS / "_ext")
    text = (DOCS / "conf.py").read_text()
    # of a small site: its own pages only
    (source / "conf.py").write_text(text.replace("html_extra_path", "unused"))
    page = (DOCS / "quickstart.md").read_text()
    tabs = page[page.index("::::{tab-set}") : page.rindex("::::") + 4]
    (source / "index.md").write_text(f"# Index\n\n```bash\ntorchx list\n```\n\n{tabs}\n")
    env = {**os.environ, "TORCHX_REPOSITORY": "https://git.example.com/me/torchx"}
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-b",
        "html",
        str(source),
        str(tmp_path / "out"),
    ]
    subprocess.run(command, env=env, check=True, capture_output=True)
    html = (tmp_path / "out/index.html").read_text()
    assert "copybutton.js" in html
    assert html.count('class="sd-tab-label"') == 6
    assert 'href="https://git.example.com/me/torchx"' in html
