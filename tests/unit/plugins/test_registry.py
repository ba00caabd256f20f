"""Discovery: namespace packages, entry points, which one wins, and what is told of failures."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from torchx.errors import PluginNotLoaded
from torchx.plugins import PluginRegistry, PluginType, RegistrationError, find, registry
from torchx.plugins._registry import NAMED_RESOURCES_ATTR, PluginSource
from torchx.runner.events import get_logging_handler
from torchx.schedulers import get_scheduler_factories
from torchx.specs import named_resources, resource
from torchx.tracker.api import build_trackers

NAMESPACE = PluginSource.NAMESPACE_PKG
Write = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules below folders that are on the path like those of distributions."""

    def write(module: str, source: str = "", folder: str = "one") -> Path:
        root = tmp_path / folder
        if str(root) not in sys.path:
            root.mkdir(exist_ok=True)
            monkeypatch.syspath_prepend(str(root))
            sys.path.remove(str(root))
            sys.path.append(str(root))
        path = root / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    yield write
    for name in [n for n in sys.modules if n.split(".")[0] == "torchx_plugins"]:
        del sys.modules[name]
    named_resources.reset()


SCHEDULER = """
    from torchx.plugins import register
    @register.scheduler(name={name!r})
    def create(session_name, **kwargs):
        return {name!r}
"""


def scheduler(name: str) -> str:
    return textwrap.dedent(SCHEDULER).format(name=name)


RESOURCE = """
from torchx.plugins import register
from torchx.specs import Resource
@register.named_resource(name={name!r})
def made():
    return Resource(cpu={cpu}, gpu=0, memMB=1024)
"""


def namespace_registry() -> PluginRegistry:
    return PluginRegistry(plugin_sources=NAMESPACE)


def test_nothing_installed_is_no_error() -> None:
    found = namespace_registry()
    assert found.info() == {kind: {} for kind in PluginType}
    assert found.load_errors() == []


def test_kinds_are_groups_in_a_fixed_order() -> None:
    assert [kind.value for kind in PluginType] == [
        "torchx.schedulers",
        "torchx.named_resources",
        "torchx.tracker",
        "torchx.event_handlers",
    ]
    assert PluginRegistry._namespace_for_type(PluginType.TRACKER) == "torchx_plugins.tracker"
    assert NAMED_RESOURCES_ATTR == "NAMED_RESOURCES"


def test_two_distributions_share_a_namespace(site: Write) -> None:
    site("torchx_plugins.schedulers.zeta", scheduler("zeta"), "one")
    site("torchx_plugins.schedulers.alpha", scheduler("alpha"), "two")
    site("torchx_plugins.schedulers.nested.__init__", scheduler("nested"), "two")
    site("torchx_plugins.schedulers.nested.deeper", scheduler("deeper"), "two")
    site("torchx_plugins.schedulers.plain.inside", scheduler("plain"), "one")
    found = namespace_registry()
    assert list(found.get(PluginType.SCHEDULER)) == ["zeta", "alpha", "nested", "deeper", "plain"]
    assert found.errors == []


def test_private_modules_are_not_imported(site: Write) -> None:
    site("torchx_plugins.schedulers._hidden", "raise RuntimeError('imported')")
    site("torchx_plugins.schedulers._folder.inside", "raise RuntimeError('imported')")
    found = namespace_registry()
    assert found.get(PluginType.SCHEDULER) == {}
    assert found.errors == []


def test_what_is_only_imported_is_not_registered_again(site: Write) -> None:
    site("torchx_plugins.schedulers.a", scheduler("a"))
    site("torchx_plugins.schedulers.b", "from torchx_plugins.schedulers.a import create\n")
    found = namespace_registry()
    assert list(found.get(PluginType.SCHEDULER)) == ["a"]
    assert found.errors == []


def test_a_broken_module_is_told_and_the_others_are_found(
    site: Write, caplog: pytest.LogCaptureFixture
) -> None:
    site("torchx_plugins.schedulers.a_broken", "import no_such_module_anywhere")
    site("torchx_plugins.schedulers.b_raises", "raise RuntimeError('on purpose')")
    site("torchx_plugins.schedulers.good", scheduler("good"))
    found = namespace_registry()
    assert list(found.get(PluginType.SCHEDULER)) == ["good"]
    assert [(e.module, e.error, e.name) for e in found.errors] == [
        (
            "torchx_plugins.schedulers.a_broken",
            "ModuleNotFoundError: No module named 'no_such_module_anywhere'",
            None,
        ),
        ("torchx_plugins.schedulers.b_raises", "RuntimeError: on purpose", None),
    ]
    assert caplog.text.count("cannot be imported") == 2


@pytest.mark.parametrize("module", ["torchx_plugins.schedulers.a", "torchx_plugins.__init__"])
def test_a_module_cannot_end_the_process(site: Write, module: str) -> None:
    site(module, "import sys\nsys.exit(4)")
    site("torchx_plugins.schedulers.good", scheduler("good"))
    (error,) = PluginRegistry().load_errors(PluginType.SCHEDULER)
    assert error.error == "RuntimeError: it calls `sys.exit(4)` while it is imported"
    whole_namespace = module.endswith("__init__")
    assert list(get_scheduler_factories(skip_defaults=True)) == (
        [] if whole_namespace else ["good"]
    )


def test_a_module_can_be_interrupted(site: Write) -> None:
    site("torchx_plugins.schedulers.slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        namespace_registry().get(PluginType.SCHEDULER)


def test_an_attribute_that_cannot_be_read_is_no_plugin(site: Write) -> None:
    site(
        "torchx_plugins.schedulers.proxied",
        "class Proxy:\n"
        "    def __getattr__(self, name):\n"
        "        raise RuntimeError('working outside of request context')\n"
        "current = Proxy()\n" + scheduler("good"),
    )
    found = namespace_registry()
    assert list(found.get(PluginType.SCHEDULER)) == ["good"]
    assert found.errors == []


def test_what_is_printed_while_plugins_are_imported_goes_to_stderr(
    site: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site("torchx_plugins.schedulers.noisy", "print('from a module')\n")
    site("acme_noisy", "print('from an entry point')\ndef make(session_name): ...\n")
    entry_points(tmp_path / "one", "acme", "[torchx.schedulers]\nnoisy = acme_noisy:make\n")
    PluginRegistry().check()
    print("result")  # noqa: T201 - what a command writes
    captured = capsys.readouterr()
    assert captured.out == "result\n"
    assert captured.err.splitlines() == ["from a module", "from an entry point"]


def test_a_decorator_without_parentheses_is_told(site: Write) -> None:
    site(
        "torchx_plugins.schedulers.bare",
        "from torchx.plugins import register\n@register.scheduler\ndef acme(session_name): ...\n",
    )
    (error,) = namespace_registry().load_errors(PluginType.SCHEDULER)
    assert "write `@register.scheduler()`, with the parentheses" in error.error


def test_a_namespace_that_cannot_be_imported_is_one_error(site: Write) -> None:
    site("torchx_plugins.tracker.__init__", "import no_such_module_anywhere")
    found = namespace_registry()
    assert found.get(PluginType.TRACKER) == {}
    (error,) = found.load_errors(PluginType.TRACKER)
    assert (error.module, error.name) == ("torchx_plugins.tracker", None)
    assert "no_such_module_anywhere" in error.error


def test_a_namespace_that_is_a_module_is_empty(site: Write) -> None:
    site("torchx_plugins.tracker", scheduler("x"))
    found = namespace_registry()
    assert found.get(PluginType.TRACKER) == {}
    assert found.errors == []


def test_a_plugin_in_the_wrong_place_is_told_under_its_own_kind(site: Write) -> None:
    site(
        "torchx_plugins.schedulers.wrong",
        "from torchx.plugins import register\n@register.tracker(name='trk')\ndef create(c): ...\n",
    )
    found = namespace_registry()
    assert found.get(PluginType.SCHEDULER) == {}
    (error,) = found.errors
    assert (error.name, error.plugin_type) == ("trk", "tracker")
    assert "is a tracker but is under the scheduler namespace" in error.error
    assert "@register.scheduler()" in error.error
    assert "torchx_plugins.tracker" in error.error
    assert found.load_errors(PluginType.TRACKER) == [error]
    assert found.load_errors(PluginType.SCHEDULER) == [error]


def test_the_same_resource_twice_is_fine_another_one_is_told(site: Write) -> None:
    site("torchx_plugins.named_resources.a", RESOURCE.format(name="r", cpu=4))
    site("torchx_plugins.named_resources.b", RESOURCE.format(name="r", cpu=4))
    site("torchx_plugins.named_resources.c", RESOURCE.format(name="r", cpu=8))
    found = namespace_registry()
    assert found.get(PluginType.NAMED_RESOURCE)["r"]().cpu == 4
    (error,) = found.errors
    assert error.module == "torchx_plugins.named_resources.c"
    assert "DIFFERENT value" in error.error


def test_twin_classes_and_sets_are_the_same(site: Write) -> None:
    source = """
        import enum
        from torchx.plugins import register
        from torchx.specs import Resource
        class Kind(enum.Enum):
            FAST = {"b", "a"}
        @register.named_resource(name="r")
        def made():
            return Resource(1, 0, 1, capabilities={"kind": Kind.FAST, "set": {3, 1, 2}})
    """
    site("torchx_plugins.named_resources.a", source)
    site("torchx_plugins.named_resources.b", source)
    found = namespace_registry()
    assert list(found.get(PluginType.NAMED_RESOURCE)) == ["r"]
    assert found.errors == []


@pytest.mark.parametrize("error", ["OSError", "SystemExit(3)"])
def test_a_factory_that_raises_is_never_the_same(site: Write, error: str) -> None:
    source = f"""
        from torchx.plugins import register
        @register.named_resource(name="r")
        def made():
            raise {error}
    """
    site("torchx_plugins.named_resources.a", source)
    site("torchx_plugins.named_resources.b", source)
    found = namespace_registry()
    found.get(PluginType.NAMED_RESOURCE)
    assert [error.name for error in found.errors] == ["r"]


def test_two_schedulers_of_one_name_are_told_and_not_called(site: Write) -> None:
    site("torchx_plugins.schedulers.a", scheduler("s"))
    site("torchx_plugins.schedulers.b", scheduler("s"))
    found = namespace_registry()
    assert found.get(PluginType.SCHEDULER)["s"].__module__ == "torchx_plugins.schedulers.a"
    assert ["DIFFERENT value" in error.error for error in found.errors] == [True]


def entry_points(folder: Path, name: str, text: str) -> None:
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(text))


def test_an_entry_point_wins_over_the_namespace(site: Write, tmp_path: Path) -> None:
    site("torchx_plugins.schedulers.a", scheduler("a") + scheduler("b").replace("create", "other"))
    site("acme_entry", "def make(session_name, **kwargs): return 'by entry point'\n")
    text = "[torchx.schedulers]\na = acme_entry:make\nnew = acme_entry:make\n"
    entry_points(tmp_path / "one", "acme", text)
    found = PluginRegistry()
    assert list(found.get(PluginType.SCHEDULER)) == ["a", "b", "new"]
    assert found.get(PluginType.SCHEDULER)["a"]("s") == "by entry point"
    (error,) = found.errors
    assert (error.name, error.module) == ("a", "torchx_plugins.schedulers.a")
    assert error.plugin_type == "scheduler"
    assert "entry point wins" in error.error


def test_two_entry_points_of_one_name_are_warned_about(
    site: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site("acme_entry", "def make(session_name, **kwargs): ...\n", "one")
    site("acme_other", "", "two")
    entry_points(tmp_path / "one", "acme", "[torchx.schedulers]\na = acme_entry:make\n")
    entry_points(tmp_path / "two", "other", "[torchx.schedulers]\na = acme_other:make\n")
    PluginRegistry().get(PluginType.SCHEDULER)
    assert "`a` of group `torchx.schedulers` is registered twice" in caplog.text
    assert "acme 1.2" in caplog.text
    assert "other 1.2" in caplog.text


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (None, ["ns", "ep"]),
        ("", ["ns", "ep"]),
        ("3", ["ns", "ep"]),
        ("1", ["ns"]),
        ("2", ["ep"]),
        ("0", []),
    ],
)
def test_the_environment_says_where_to_look(
    site: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str | None,
    names: list[str],
) -> None:
    site("torchx_plugins.schedulers.a", scheduler("ns"))
    entry_points(tmp_path / "one", "acme", "[torchx.schedulers]\nep = acme_entry:make\n")
    if source is not None:
        monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", source)
    registry.cache_clear()
    assert list(find(PluginType.SCHEDULER)) == names


def test_an_intermediate_releases_switch_is_understood(
    site: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points(tmp_path, "acme", "[torchx.schedulers]\nep = acme_entry:make\n")
    monkeypatch.setenv("TORCHX_NO_ENTRYPOINTS", "1")
    registry.cache_clear()
    assert find(PluginType.SCHEDULER) == {}


@pytest.mark.parametrize("value", ["4", "-1", "1a", "namespace"])
def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", value)
    registry.cache_clear()
    with pytest.raises(ValueError, match="TORCHX_PLUGINS_SOURCE"):
        registry()
    monkeypatch.delenv("TORCHX_PLUGINS_SOURCE")


def test_results_are_kept_until_cleared(site: Write) -> None:
    site("torchx_plugins.schedulers.a", scheduler("a"))
    found = registry()
    first = found.get(PluginType.SCHEDULER)
    assert found.get(PluginType.SCHEDULER) is first
    assert registry() is found
    found.clear()
    again = registry().get(PluginType.SCHEDULER)
    assert again is not first
    assert list(again) == list(first)
    assert registry() is not found


def test_info_gives_copies(site: Write) -> None:
    site("torchx_plugins.schedulers.a", scheduler("a"))
    found = namespace_registry()
    found.info()[PluginType.SCHEDULER].clear()
    found.info(PluginType.SCHEDULER).clear()
    assert list(found.get(PluginType.SCHEDULER)) == ["a"]
    assert list(found.info()) == list(PluginType)


def test_errors_look_for_nothing(site: Write) -> None:
    site("torchx_plugins.schedulers.broken", "raise RuntimeError")
    found = namespace_registry()
    assert found.errors == []
    assert len(found.load_errors()) == 1
    found.errors.clear()
    assert len(found.errors) == 1


def test_threads_discover_once(site: Write, tmp_path: Path) -> None:
    log = tmp_path / "log"
    site(
        "torchx_plugins.schedulers.slow",
        f"import time\nwith open({str(log)!r}, 'a') as f:\n    f.write('x')\ntime.sleep(0.1)\n"
        + scheduler("slow"),
    )
    found = namespace_registry()
    seen: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: seen.append(list(found.get(PluginType.SCHEDULER))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [["slow"]] * 8
    assert log.read_text() == "x"


def test_modules_that_look_resources_up_do_not_block_those_who_do(tmp_path: Path) -> None:
    folder = tmp_path / "torchx_plugins" / "schedulers"
    folder.mkdir(parents=True)
    (tmp_path / "meeting.py").write_text("import threading\ninside = threading.Event()\n")
    # one thread finds schedulers and looks a resource up, another one has begun to look one up
    (folder / "slow.py").write_text(
        "import meeting, torchx.specs\n"
        "meeting.inside.wait(1)\n"
        "torchx.specs.resource(h='cpu.small')\n" + scheduler("slow")
    )
    (tmp_path / "custom.py").write_text(
        "import meeting\nmeeting.inside.set()\nNAMED_RESOURCES = {}\n"
    )
    code = (
        "import os, threading\n"
        "from torchx.plugins import PluginType, find\n"
        "from torchx.specs import resource\n"
        "jobs = [lambda: find(PluginType.SCHEDULER), lambda: resource(h='cpu.small')]\n"
        "threads = [threading.Thread(target=job, daemon=True) for job in jobs]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join(10)\n"
        "print(*find(PluginType.SCHEDULER)) if not threads[0].is_alive() else os._exit(3)\n"
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "TORCHX_CUSTOM_NAMED_RESOURCES": "custom",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "slow\n"), done.stderr


def test_a_module_that_asks_for_its_own_kind_is_told(site: Write) -> None:
    site(
        "torchx_plugins.named_resources.a_asks",
        "from torchx.specs import resource\nresource(h='gpu.small')\n",
    )
    site("torchx_plugins.named_resources.good", RESOURCE.format(name="good", cpu=3))
    registry().clear()
    named_resources.reset()
    assert resource(h="good").cpu == 3
    (error,) = registry().errors
    assert error.module == "torchx_plugins.named_resources.a_asks"
    assert "re-entrant named-resource lookup" in error.error


def test_it_is_told_alike_whoever_looks_first(site: Write) -> None:
    site(
        "torchx_plugins.named_resources.a_asks",
        "from torchx.specs import resource\nresource(h='gpu.small')\n",
    )
    registry().clear()
    named_resources.reset()
    (error,) = registry().load_errors(PluginType.NAMED_RESOURCE)
    assert "re-entrant named-resource lookup" in error.error


def test_an_entry_point_that_cannot_be_loaded_is_named(site: Write, tmp_path: Path) -> None:
    groups = ("named_resources", "tracker", "event_handlers")
    text = "".join(f"[torchx.{group}]\nbad = acme_no_such:make\n" for group in groups)
    entry_points(tmp_path, "acme", text)
    site("unused")
    sys.path.append(str(tmp_path))
    try:
        with pytest.raises(PluginNotLoaded) as resources:
            resource(h="bad")
        with pytest.raises(ModuleNotFoundError) as trackers:
            list(build_trackers({"bad": None}))
        with pytest.raises(ModuleNotFoundError) as handlers:
            get_logging_handler("bad")
    finally:
        sys.path.remove(str(tmp_path))
    for caught, kind in (
        (resources, "named resource"),
        (trackers, "tracker"),
        (handlers, "event handler"),
    ):
        assert str(caught.value) == (
            f"the {kind} of <entry point bad = acme_no_such:make> of acme 1.2 cannot be loaded:"
            " ModuleNotFoundError: No module named 'acme_no_such'"
        )
        assert caught.value.name == "acme_no_such"


def test_diagnostics_read_back_as_yaml(site: Write, tmp_path: Path) -> None:
    site("torchx_plugins.schedulers.acme", scheduler("acme"))
    site("torchx_plugins.schedulers.broken", "import ray_that_is_missing")
    site(
        "torchx_plugins.schedulers.wrong",
        "from torchx.plugins import register\n@register.tracker(name='trk')\ndef create(c): ...\n",
    )
    site(
        "torchx_plugins.named_resources.acme",
        """
        from torchx.plugins import *
        from torchx.plugins import WHOLE
        from torchx.specs import Resource
        @register.named_resource(aliases=["h100", "null"], fractionals=powers_of_two_gpus)
        def acme_h100(fractional: float = WHOLE):
            return Resource(96, int(2 * fractional), 1024)
        """,
    )
    found = namespace_registry()
    text = str(found)
    assert text == textwrap.dedent("""\
        scheduler:
          - name: acme
            module: torchx_plugins.schedulers.acme
        named_resource:
          - name: acme_h100
            module: torchx_plugins.named_resources.acme
            aliases: [h100, "null"]
            fractionals: [acme_h100_1, acme_h100_2]
        tracker:
          - name: trk
            module: torchx_plugins.schedulers.wrong
            error: "`trk` is a tracker but is under the scheduler namespace; decorate it with \
@register.scheduler() or move its module below `torchx_plugins.tracker`"
        event_handler: []
        errors:
          - module: torchx_plugins.schedulers.broken
            error: "ModuleNotFoundError: No module named 'ray_that_is_missing'"
        """)
    assert yaml.safe_load(text) == found.to_dict()


def test_diagnostics_load_entry_points(site: Write, tmp_path: Path) -> None:
    site("acme_entry", "def make(session_name, **kwargs): ...\n")
    entry_points(
        tmp_path / "one",
        "acme",
        "[torchx.schedulers]\ngood = acme_entry:make\nbad = acme_entry:nothing\n"
        "worse = acme_no_such:make\n",
    )
    found = PluginRegistry(plugin_sources=PluginSource.ENTRYPOINT)
    section = found.to_dict()["scheduler"]
    assert section[0] == {"name": "good", "module": "acme_entry", "distribution": "acme 1.2"}
    assert [(e["name"], e["module"]) for e in section[1:]] == [
        ("bad", "acme_entry"),
        ("worse", "acme_no_such"),
    ]
    assert "AttributeError" in section[1]["error"]
    assert "ModuleNotFoundError" in section[2]["error"]
    assert found.check() == found.check()


def test_errors_are_values() -> None:
    assert RegistrationError("m", "e") == RegistrationError("m", "e", None, None)
    with pytest.raises(AttributeError):
        RegistrationError("m", "e").module = "n"  # type: ignore[misc]


def test_importing_the_packages_discovers_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "torchx_plugins" / "named_resources"
    folder.mkdir(parents=True)
    (folder / "noisy.py").write_text("import sys\nsys.__stdout__.write('imported\\n')\n")
    code = (
        "import sys, torchx.plugins, torchx.specs; print('before')\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "torchx.specs.resource(h='gpu.small')"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    out = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert out.stdout == "before\nimported\n"
