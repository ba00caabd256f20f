"""Configuration of the documentation's build."""

import sys
from importlib.util import find_spec
from pathlib import Path

from torchx import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "TorchX"
copyright = "the TorchX developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "torchx_docs"]
extensions.append("kubernetes_fields")
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_extra_path = ["../src/torchx/cli/output.schema.json"]
html_title = f"TorchX {release}"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# no optional package is needed to build
autodoc_mock_imports = [name for name in ("torch", "pytest") if find_spec(name) is None]
suppress_warnings = ["ref.python"]
napoleon_google_docstring = True
