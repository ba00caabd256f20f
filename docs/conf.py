"""Configuration of the documentation's build."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from torchx import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))


def repository_url() -> str:
    """Where the sources are: ``$TORCHX_REPOSITORY``, else where this checkout was cloned from.

    Empty where neither is an address of the web, as for a release that was unpacked.
    """
    url = os.environ.get("TORCHX_REPOSITORY", "")
    if not url:
        command = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
        try:
            url = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError:  # git is not installed
            return ""
    url = url.strip().removesuffix("/").removesuffix(".git")
    if url.startswith("git@"):
        url = "https://" + url.removeprefix("git@").replace(":", "/", 1)
    return url if url.startswith(("https://", "http://")) else ""


project = "TorchX"
copyright = "the TorchX developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "torchx_docs"]
extensions += ["kubernetes_fields", "sphinx_copybutton", "sphinx_design"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
repository = repository_url()
html_theme_options: dict[str, object] = {}
if repository:
    link = {"name": "Repository", "url": repository, "html": "Repository", "class": ""}
    html_theme_options["footer_icons"] = [link]
if repository.startswith(("https://github.com/", "https://gitlab.com/")):  # what the theme knows
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_extra_path = ["../src/torchx/cli/output.schema.json"]
html_title = f"TorchX {release}"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
toc_object_entries = False  # the contents of a page are its headings, not 25 methods
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# no optional package is needed to build
autodoc_mock_imports = [name for name in ("torch", "pytest") if find_spec(name) is None]
suppress_warnings = ["ref.python"]
napoleon_google_docstring = True
