"""The directives of the documentation, in small sites of their own. Needs Sphinx."""

import re
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install 'torchx[docs]'")
pytest.importorskip(
    "myst_parser", reason="myst-parser is not installed: pip install 'torchx[docs]'"
)
pytestmark = pytest.mark.filterwarnings(  # of Sphinx about its extensions
    "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"
)

EXTENSIONS = Path(__file__).parents[2] / "docs/_ext"

ALL = """
logs: yes, live
distributed: yes
cancel: yes
describe: partly, names only
workspaces: no
mounts: no
elasticity: no
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds a site of one page; gives the text of its HTML."""
    from sphinx.application import Sphinx

    monkeypatch.syspath_prepend(str(EXTENSIONS))

    def build(text: str, **pages: str) -> str:
        source = tmp_path / "source"
        source.mkdir()
        (source / "conf.py").write_text("extensions = ['myst_parser', 'torchx_docs']\n")
        (source / "index.md").write_text(f"# Page\n\n{text}\n")
        for name, content in pages.items():
            (source / f"{name}.md").write_text(f"---\norphan: true\n---\n{content}")
        out = tmp_path / "html"
        app = Sphinx(
            source, source, out, tmp_path / "trees", "html", status=None, warningiserror=True
        )
        app.build()
        html = (out / "index.html").read_text()
        body = html.partition('role="main"')[2].partition("footer")[0]
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))

    return build


def directive(name: str, content: str = "", class_: str = "") -> str:
    option = f":class: {class_}\n" if class_ else ""
    return f"```{{{name}}}\n{option}{content}\n```"


LOCAL = "torchx.schedulers.local_scheduler.LocalScheduler"


def test_options_are_those_that_the_scheduler_declares(site) -> None:
    from torchx.schedulers.local_scheduler import create_scheduler

    text = site(directive("runopts", class_=LOCAL))
    for key, opt in create_scheduler("test").run_opts():
        assert f" {key} {opt.opt_type.__name__} {opt.default} " in text


def test_required_options_come_first(site, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "acme_needs.py").write_text(
        "from torchx.schedulers.api import Scheduler\n"
        "from torchx.specs import runopts\n"
        "class Needs(Scheduler):\n"
        "    _submit_dryrun = schedule = describe = list = _cancel_existing = None\n"
        "    def __init__(self, session_name):\n"
        "        super().__init__('needs', session_name)\n"
        "    def _run_opts(self):\n"
        "        opts = runopts()\n"
        "        opts.add('mode', str, 'one | other', 'fast')\n"
        "        opts.add('tags', list[str], 'marks', None)\n"
        "        opts.add('queue', str, 'where to wait', required=True)\n"
        "        return opts\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = site(directive("runopts", class_="acme_needs.Needs"))
    assert "queue str required where to wait mode str fast one | other tags list[str] None" in text


def test_features_are_listed_in_their_order(site) -> None:
    text = site(directive("compatibility", ALL, LOCAL))
    assert "Fetch logs yes, live Distributed jobs yes Cancel job yes" in text
    assert text.index("Workspaces / patching") < text.index("Mounts") < text.index("Elasticity")


@pytest.mark.parametrize(
    ("text", "class_", "message"),
    [
        (ALL.replace("mounts: no\n", ""), "", "lacks ['mounts']"),
        (f"{ALL}speed: yes\n", "", "has ['speed'] too much"),
        (f"{ALL}mounts: yes\n", "", "there twice"),
        (ALL.replace("cancel: yes", "cancel: perhaps"), "", "it is `perhaps`"),
        (ALL.replace("mounts: no", "mounts: yes"), LOCAL, "declares False"),
        (ALL.replace("logs: yes", "logs: no"), LOCAL, "declares True"),
        (ALL, "torchx.schedulers.NoSuchScheduler", "there is no"),
    ],
)
def test_a_table_that_is_wrong_ends_the_build(site, text: str, class_: str, message: str) -> None:
    from sphinx.errors import ExtensionError

    with pytest.raises(ExtensionError, match=re.escape(message)) as raised:
        site(directive("compatibility", text, class_))
    assert str(raised.value).startswith("index, line ")


def test_options_need_a_class(site) -> None:
    from sphinx.errors import ExtensionError

    with pytest.raises(ExtensionError, match="must name a scheduler"):
        site(directive("runopts"))


def test_named_resources_are_those_of_the_module(site) -> None:
    text = site("```{named-resources} torchx.specs.named_resources_generic\n```")
    assert "gpu.small 8 1 32 GiB" in text
    assert "cpu.nano 1 0 512 MiB" in text


def test_the_quick_reference_is_copied_as_text_with_links_to_pages(site, tmp_path: Path) -> None:
    content = "# Quick\n\n[one](specs.md#a) [two](https://example.com/x.md)\n"
    site("text", quick_reference=content.replace("(specs.md#a)", "(index.md)"))
    text = (tmp_path / "html/llms.txt").read_text()
    assert "[one](index.html) [two](https://example.com/x.md)" in text
