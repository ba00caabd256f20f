"""Built-in components, structured arguments, the finder, helper programs."""

import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchx.specs as specs
from torchx import IMAGE
from torchx.components import dist, interpret, metrics, serve, train, utils
from torchx.components.component_test_base import ComponentTestCase
from torchx.components.structured_arg import StructuredJArgument, StructuredNameArgument
from torchx.errors import InvalidInput
from torchx.runner import get_runner
from torchx.specs import BindMount, Resource, Role
from torchx.specs.builders import _create_args_parser
from torchx.specs.file_linter import validate
from torchx.specs.finder import (
    ComponentNotFoundException,
    ComponentValidationException,
    ModuleComponentsFinder,
    get_builtin_source,
    get_component,
    get_components,
    module_relname,
)

BUILTINS = {
    "dist.ddp", "dist.spmd", "dist.torchrun", "metrics.tensorboard", "serve.torchserve",
    "utils.binary", "utils.booth", "utils.copy", "utils.echo",
    "utils.hydra", "utils.python", "utils.sh", "utils.touch",
}  # fmt: skip

# -- structured arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/", "default-experiment/q"),
        ("", "default-experiment/q"),
        ("a/", "a/q"),
        ("/b", "default-experiment/b"),
        ("b", "default-experiment/b"),
        ("a/b", "a/b"),
        ("a/b/c", "a/b/c"),
    ],
)
def test_names_are_structured(name, expected):
    assert str(StructuredNameArgument.parse_from(name, script="p/q.py")) == expected


def test_names_come_from_the_program():
    assert StructuredNameArgument.parse_from("/", m="x.y.z").run_name == "z"
    assert StructuredNameArgument.parse_from("/", script="a/b.tar.gz").run_name == "b.tar"
    with pytest.raises(ValueError, match="No main module or script specified"):
        StructuredNameArgument.parse_from("/")
    with pytest.raises(ValueError, match="Both main module and script set"):
        StructuredNameArgument.parse_from("/", m="a", script="b")


def test_sizes_are_structured():
    assert str(StructuredJArgument.parse_from("aws_p4d.24xlarge", "2")) == "2x8"
    with pytest.warns(UserWarning, match="has 8 GPUs"):
        assert str(StructuredJArgument.parse_from("aws_p4d.24xlarge", "2x16")) == "2x16"
    with pytest.warns(UserWarning, match="has 0 GPUs"):
        assert str(StructuredJArgument.parse_from("aws_trn1.2xlarge", "2x8")) == "2x8"
    with pytest.raises(ValueError, match="nproc_per_node cannot be inferred from GPU count"):
        StructuredJArgument.parse_from("aws_trn1.32xlarge", "2")
    with pytest.raises(ValueError, match="Invalid format"):
        StructuredJArgument.parse_from("gpu.small", "1x2x3")
    with pytest.raises(ValueError, match="invalid literal"):
        StructuredJArgument.parse_from("gpu.small", "1:2x4")
    with pytest.raises(KeyError):
        StructuredJArgument.parse_from("nope", "1")


# -- dist ---------------------------------------------------------------------------------------

HEAD = "torchrun --rdzv_backend c10d "
SINGLE = "--rdzv_endpoint localhost:0 --rdzv_id '${app_id}' "


@pytest.mark.parametrize(
    ("script_args", "kwargs", "command"),
    [
        (
            ("--x", "a b"),
            {"script": "foo/bar.py"},
            HEAD + SINGLE + "--nnodes 1 --nproc_per_node 2 --tee 3 --role '' foo/bar.py --x 'a b'",
        ),
        (
            (),
            {"m": "a.b.c", "j": "2x4", "rdzv_port": 1, "tee": 0},
            HEAD + "--rdzv_endpoint $${${rank0_env}:=localhost}:1 --rdzv_id '${app_id}' "
            "--nnodes 2 --nproc_per_node 4 --tee 0 --role '' -m a.b.c",
        ),
        (
            (),
            {"script": "s.py", "j": "1:3x4", "rdzv_conf": "a=1,b=2"},
            HEAD + "--rdzv_conf a=1,b=2 --rdzv_endpoint $${${rank0_env}:=localhost}:29500 "
            "--rdzv_id '${app_id}' --nnodes 1:3 --nproc_per_node 4 --tee 3 --role '' s.py",
        ),
        (
            (),
            {"script": "s.py", "j": "2x4", "rdzv_backend": "static"},
            "torchrun --rdzv_backend static --rdzv_endpoint $${${rank0_env}:=localhost}:29500 "
            "--rdzv_id '${app_id}' --nnodes 2 --nproc_per_node 4 --tee 3 --role '' "
            "--node_rank '${replica_id}' s.py",
        ),
    ],
)
@pytest.mark.parametrize("component", [dist.ddp, dist.torchrun])
def test_the_command_line_of_torchrun(component, script_args, kwargs, command):
    role = component(*script_args, **kwargs).roles[0]
    assert (role.entrypoint, role.args) == ("bash", ["-c", command])


def test_what_ddp_makes():
    env, metadata = {"A": "1", "LOGLEVEL": "INFO"}, {"k": "v"}
    app = dist.ddp(
        script="a/train.py",
        name="exp/run",
        j="1:3x2",
        h="gpu.small",
        env=env,
        metadata=metadata,
        max_retries=2,
        mounts=["type=bind", "src=/a", "dst=/b"],
        debug=True,
    )
    role = app.roles[0]
    assert (app.name, app.metadata, role.name) == ("run", {"k": "v"}, "train")
    assert (role.num_replicas, role.min_replicas, role.max_retries) == (3, 1, 2)
    assert role.resource.gpu == 1
    assert role.port_map == {"c10d": 29500}
    assert role.mounts == [BindMount("/a", "/b")]
    assert role.image == IMAGE
    assert role.env == {
        "A": "1",
        "LOGLEVEL": "INFO",
        "TORCHX_TRACKING_EXPERIMENT_NAME": "exp",
        "TORCHX_TRACKING_RUN_NAME": "run",
        **dist._TORCH_DEBUG_FLAGS,
    }
    assert env == {"A": "1", "LOGLEVEL": "INFO"}
    assert metadata == {"k": "v"}


def test_the_log_level_is_handed_on(monkeypatch):
    assert dist.ddp(script="s.py").roles[0].env["LOGLEVEL"] == "WARNING"
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    assert dist.ddp(script="s.py").roles[0].env["LOGLEVEL"] == "DEBUG"


def test_exactly_one_program():
    for kwargs in ({}, {"script": "a", "m": "b"}):
        with pytest.raises(ValueError, match="exactly one of --script and -m must be specified"):
            dist.ddp(**kwargs)
    with pytest.raises(ValueError, match="No main module or script specified"):
        dist.ddp(script="")


@pytest.mark.parametrize(
    ("j", "parsed"),
    [
        ("4", (1, 1, 4, "1")),
        ("1x2", (1, 1, 2, "1")),
        ("1:2x3", (1, 2, 3, "1:2")),
        ("0:1x2", (0, 1, 2, "0:1")),
    ],
)
def test_sizes_are_parsed(j, parsed):
    assert dist.parse_nnodes(j) == parsed


@pytest.mark.parametrize(
    "j", ["1x", "x2", ":3", ":2x1", "1x2:3", "", "a", "-1", " 2", "2:1x4", "2\n", "²"]
)
def test_wrong_sizes_are_refused(j):
    with pytest.raises(ValueError, match="Invalid format for -j, usage example: 1:2x4"):
        dist.parse_nnodes(j)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_sizes_survive_their_text(least, more, procs):
    most = least + more
    assert dist.parse_nnodes(f"{least}:{most}x{procs}")[:3] == (least, most, procs)


@given(st.text("0123456789x:- "))
def test_any_size_is_parsed_or_refused(j):
    try:
        least, most, procs, _ = dist.parse_nnodes(j)
    except ValueError:
        return
    assert 0 <= least <= most
    assert procs >= 0


def test_a_plain_number_means_nodes_only_to_torchrun_and_spmd():
    assert dist.torchrun(script="s", h="aws_p4d.24xlarge", j="2").roles[0].num_replicas == 2
    assert "--nproc_per_node 8" in dist.torchrun(script="s", h="gpu.xlarge", j="2").roles[0].args[1]
    assert dist.ddp(script="s", h="gpu.xlarge", j="2").roles[0].num_replicas == 1
    assert dist.torchrun(script="s", j="2").roles[0].num_replicas == 1
    role = dist.spmd(script="s", h="gpu.xlarge", j="2").roles[0]
    assert (role.num_replicas, "--nproc_per_node 8" in role.args[1]) == (2, True)
    with pytest.raises(ValueError, match="cannot be inferred"):
        dist.torchrun(script="s", h="cpu.small", j="2")


def test_roles_are_named_after_the_program():
    assert dist.get_role_name("a/b.py", None) == "b"
    assert dist.get_role_name(None, "a.b") == "b"
    with pytest.raises(ValueError, match="failed to compute role_name"):
        dist.get_role_name(None, None)


# -- utils --------------------------------------------------------------------------------------


def test_simple_components():
    echo = utils.echo("hi", num_replicas=3).roles[0]
    assert (echo.entrypoint, echo.args, echo.num_replicas) == ("echo", ["hi"], 3)
    assert echo.resource == Resource(1, 0, 1024)
    assert utils.touch("f").roles[0].args == ["f"]
    binary = utils.binary("a b", "$x", entrypoint="prog").roles[0]
    assert (binary.image, binary.entrypoint, binary.args) == ("<NONE>", "prog", ["a b", "$x"])
    copy = utils.copy("a", "b").roles[0]
    assert copy.args == ["-m", "torchx.apps.utils.copy_main", "--src", "a", "--dst", "b"]
    booth = utils.booth(1.0, 2.0).roles[0].args
    assert booth[2:6] == ["--x1", "1.0", "--x2", "2.0"]


def test_shell_commands_arrive_as_given():
    assert utils.sh("echo", "a b", "$X").roles[0].args == ["-c", "echo 'a b' '$X'"]
    assert utils.sh("a b", "c").roles[0].args == ["-c", "'a b' c"]
    assert utils.sh("/opt/a b").roles[0].args == ["-c", "'/opt/a b'"]
    assert utils.sh("sh", "-c", "a; b").roles[0].args == ["-c", "sh -c 'a; b'"]
    role = utils.sh("-c", "a b", entrypoint="bash").roles[0]
    assert (role.entrypoint, role.args) == ("bash", ["-c", "a b"])
    env = {"A": "1"}
    assert utils.sh("x", env=env).roles[0].env == {"A": "1", "LOGLEVEL": "WARNING"}
    assert env == {"A": "1"}


def test_python_takes_one_program():
    role = utils.python("x", m="a.b").roles[0]
    assert (role.args, role.env) == (["-m", "a.b", "x"], {"HYDRA_MAIN_MODULE": "a.b"})
    assert utils.python("x", c="1").roles[0].args == ["-c", "1", "x"]
    assert utils.python("x", script="s.py").roles[0].args == ["s.py", "x"]
    for kwargs in ({}, {"m": "a", "c": "b"}):
        with pytest.raises(ValueError, match="exactly one of `-m`, `-c` and `--script`"):
            utils.python(**kwargs)
    with pytest.raises(ValueError, match="no program specified"):
        utils.python(m="")


def test_apps_are_composed_with_hydra_again_and_again(tmp_path: Path, monkeypatch):
    pytest.importorskip("hydra", reason="hydra is not installed: pip install 'torchx[hydra]'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".torchx").mkdir()
    (tmp_path / ".torchx/job.yaml").write_text(
        "replicas: 1\n"
        "app:\n"
        "  _target_: torchx.specs.AppDef\n"
        "  name: job\n"
        "  roles:\n"
        "    - _target_: torchx.specs.Role\n"
        "      name: w\n"
        "      image: ''\n"
        "      args: ['${torchx.app_id:}', '${torchx.replica_id:}']\n"
        "      num_replicas: ${replicas}\n"
    )
    for n in (2, 3):
        app = utils.hydra(f"replicas={n}", config_name="job")
        assert app.roles[0].num_replicas == n
        assert app.roles[0].args == ["${app_id}", "${replica_id}"]
        assert type(app.roles) is list
        assert app.roles[0].retry_policy is specs.RetryPolicy.APPLICATION


@pytest.mark.parametrize("component", [utils.sh, utils.copy, utils.python, dist.ddp])
def test_mounts_are_passed_on(component):
    kwargs = {utils.copy: {"src": "a", "dst": "b"}, utils.sh: {"entrypoint": "e"}}.get(
        component, {"script": "s"}
    )
    mounts = ["type=bind", "src=/a", "dst=/b", "readonly"]
    role = component(**kwargs, mounts=mounts).roles[0]
    assert role.mounts == [BindMount("/a", "/b", read_only=True)]
    assert component(**kwargs).roles[0].mounts == []


def test_a_shell_without_a_command_and_a_script_in_its_place_are_refused():
    with pytest.raises(InvalidInput, match=r"nothing to run.*utils\.sh -- ls -l"):
        utils.sh()
    with pytest.raises(InvalidInput, match=r"`echo a; echo b` is no program; .*sh -c 'SCRIPT'"):
        utils.sh("echo a; echo b")


def test_arguments_that_may_be_left_out_are_not_called_required(capsys):
    with pytest.raises(SystemExit):
        specs.materialize_appdef(utils.sh, ["--help"])
    assert "(required)" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        specs.materialize_appdef(utils.copy, ["--help"])
    assert "(required)" in capsys.readouterr().out


# -- serve, metrics -----------------------------------------------------------------------------


def test_a_model_is_handed_to_torchserve():
    params = {"model_name": "tiny", "batch_size": "2"}
    app = serve.torchserve("s3://m.mar", "http://api:8081", image="i", params=params, dryrun=True)
    (role,) = app.roles
    assert (app.name, role.name, role.image) == ("torchx-torchserve", "worker", "i")
    assert " ".join([role.entrypoint, *role.args]) == (
        "python -m torchx.apps.serve.serve --model_path s3://m.mar"
        " --management_api http://api:8081 --model_name tiny --batch_size 2 --dryrun"
    )
    assert role.port_map == {"model-download": 8222}
    assert role.resource == Resource(1, 0, 1024)
    assert params == {"model_name": "tiny", "batch_size": "2"}
    plain = serve.torchserve("m", "a").roles[0]
    assert plain.image == IMAGE
    assert plain.args[-2:] == ["--management_api", "a"]


def test_the_port_of_torchserves_download_is_announced():
    role = serve.torchserve("m", "a", params={"port": "9000"}).roles[0]
    assert role.args[-2:] == ["--port", "9000"]
    assert role.port_map == {"model-download": 9000}
    with pytest.raises(ValueError, match="`x` is no port"):
        serve.torchserve("m", "a", params={"port": "x"})
    with pytest.raises(ValueError, match="`--dryrun` is not the name of a parameter"):
        serve.torchserve("m", "a", params={"--dryrun": ""})


def test_parameters_of_torchserve_come_from_the_command_line():
    argv = ["--model_path", "m", "--management_api", "http://a", "--params", "handler=h,runtime=r"]
    app = specs.materialize_appdef(serve.torchserve, argv)
    assert app.roles[0].args[-4:] == ["--handler", "h", "--runtime", "r"]
    from torchx.apps.serve.serve import parse_args

    args = parse_args(app.roles[0].args[2:])
    assert (args.model_path, args.handler, args.runtime) == ("m", "h", "r")


def test_tensorboard_is_watched():
    app = metrics.tensorboard("s3://logs", image="i", timeout=60, port=8080, exit_on_file="s3://e")
    (role,) = app.roles
    assert (app.name, role.name, role.image, role.port_map) == (
        "tensorboard",
        "tensorboard",
        "i",
        {"http": 8080},
    )
    assert role.resource == Role("r", "i").resource
    assert shlex.join([role.entrypoint, *role.args]) == (
        "python -m torchx.apps.utils.process_monitor --timeout 60 --start_on_file ''"
        " --exit_on_file s3://e -- tensorboard --bind_all --port 8080 --logdir s3://logs"
    )
    from torchx.apps.utils.process_monitor import parse_args

    args = parse_args(metrics.tensorboard("-odd").roles[0].args[2:])
    assert (args.timeout, args.start_on_file, args.exit_on_file) == (3600, "", "")
    assert [args.entrypoint, *args.args][-2:] == ["--logdir", "-odd"]


def test_tensorboard_runs_until_its_file_appears(tmp_path: Path, monkeypatch):
    bin_dir, stop = tmp_path / "bin", tmp_path / "stop"
    bin_dir.mkdir()
    program = bin_dir / "tensorboard"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\n> {stop}\nexec sleep 600\n')
    program.chmod(0o755)
    python = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{bin_dir}{os.pathsep}{python}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(specs.__file__).parents[2]))
    with get_runner() as runner:
        app = metrics.tensorboard("l", image="", exit_on_file=str(stop))
        app.roles[0].args[2:2] = ["--poll_rate", "0.05"]
        status = runner.wait(runner.run(app, "local_cwd"))
    assert status is not None
    assert status.state == specs.AppState.FAILED  # it was ended, it did not end
    assert (tmp_path / "args").read_text() == "--bind_all --port 6006 --logdir l\n"


def test_training_and_interpretation_have_pages_and_no_components():
    for module in (train, interpret):
        assert module.__doc__
        assert not [name for name in vars(module) if not name.startswith("_")]


# -- finder -------------------------------------------------------------------------------------


def test_all_built_in_components_are_found():
    assert set(get_components()) == BUILTINS
    assert get_components()["utils.echo"].description == ("Echos a message to stdout (calls echo)")


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_built_in_components_keep_the_rules_and_have_help(name, capsys):
    component = get_component(name)
    module = sys.modules[component.fn.__module__]
    assert validate(str(module.__file__), component.fn_name) == []
    with pytest.raises(SystemExit):
        _create_args_parser(component.fn).parse_args(["--help"])
    assert "TIP" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["utils.echo", "dist.ddp", "utils.sh", "dist.spmd"])
def test_printed_source_runs_as_a_file(name, tmp_path: Path):
    path = tmp_path / f"mine_{name.replace('.', '_')}.py"
    path.write_text(get_builtin_source(name))
    assert get_component(f"{path}:{name.split('.')[1]}").fn_name == name.split(".")[1]


@pytest.fixture
def files(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


COMPONENT = (
    "from torchx.specs import AppDef\ndef f(a: str = 'x') -> AppDef:\n    return AppDef(a)\n"
)


def test_components_are_found_in_files(files):
    path = files("find_one.py", COMPONENT)
    for name in ("find_one.py:f", "./find_one.py:f", f"{path}:f"):
        component = get_component(name)
        assert (component.name, component.fn_name) == (name, "f")
        assert component.fn("y").name == "y"
    assert sys.modules["find_one"].f is component.fn


def test_components_are_found_in_modules(files, monkeypatch):
    files("find_pkg/__init__.py")
    files("find_pkg/mod.py", COMPONENT)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert get_component("find_pkg.mod:f").name == "find_pkg.mod:f"
    assert get_component("find_pkg.mod.f").name == "find_pkg.mod.f"


def test_packaged_files_are_loaded_as_part_of_their_package(files):
    files("find_top/__init__.py")
    files("find_top/sub/__init__.py")
    files("find_top/sub/other.py", "NAME = 'relative'\n")
    files("find_top/sub/job.py", "from .other import NAME\n" + COMPONENT.replace("'x'", "NAME"))
    component = get_component("find_top/sub/job.py:f")
    assert component.fn().name == "relative"
    assert component.fn.__module__ == "find_top.sub.job"


def test_a_file_in_a_package_that_cannot_be_imported_is_loaded_alone(files):
    files("find_heavy/__init__.py", "import not_installed_anywhere\n")
    files("find_heavy/torchx.py", "import torchx.specs\n" + COMPONENT)
    assert get_component("./find_heavy/torchx.py:f").fn().name == "x"
    assert "find_heavy" not in sys.modules
    assert sys.modules["torchx"].__name__ == "torchx"


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("gone.py:f", FileNotFoundError, "does not exist and is not a builtin"),
        ("no.such.module:f", ComponentNotFoundException, "Module `no.such.module` not found"),
        ("find_bad.py:nope", ComponentNotFoundException, "Function nope does not exist in"),
        ("find_bad.py:CONSTANT", ComponentNotFoundException, "does not exist"),
        ("find_bad.py:bad", ComponentValidationException, "Missing type annotation"),
        ("find_bad.py:AppDef", ComponentValidationException, "Function AppDef not found"),
        ("find_bad.py:NoBuild", ComponentValidationException, "must define a `build"),
        ("find_broken.py:f", ModuleNotFoundError, "not_there_either"),
        ("find_space:f", ComponentNotFoundException, "is a namespace package"),
        ("utils.ecko", ComponentNotFoundException, "Did you mean `utils.echo`?"),
        ("a:b:c", ComponentNotFoundException, "exactly one colon"),
        (":f", ComponentNotFoundException, "exactly one colon"),
    ],
)
def test_what_is_no_component_is_told(files, monkeypatch, name, error, text):
    files(
        "find_bad.py",
        "from torchx.specs import AppDef\nCONSTANT = 1\ndef bad(a) -> AppDef: ...\n"
        "class NoBuild:\n    pass\n",
    )
    files("find_broken.py", "import not_there_either\n")
    files("find_space/x.txt")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    with pytest.raises(error) as caught:
        get_component(name)
    assert text in str(caught.value)


def test_class_components_are_built(files):
    files(
        "find_class.py",
        "from torchx.specs import AppDef\n"
        "class Base:\n"
        "    def build(self) -> AppDef:\n"
        "        return AppDef(self.name)\n"
        "class Job(Base):\n"
        '    """A job."""\n'
        "    def __init__(self, name: str = 'x') -> None:\n"
        "        self.name = name\n",
    )
    component = get_component("find_class.py:Job")
    assert component.fn(name="y").name == "y"
    assert (component.fn.__name__, component.fn.__doc__) == ("Job", "A job.")
    assert specs.materialize_appdef(component.fn, ["--name", "z"]).name == "z"


def test_components_of_a_package_are_named_by_group_and_module(files, monkeypatch, caplog):
    files("find_reg/__init__.py")
    files("find_reg/bar/__init__.py")
    files("find_reg/bar/baz.py", COMPONENT)
    files("find_reg/broken.py", "raise ValueError('no')\n")
    files("find_reg/space/hidden.py", COMPONENT)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for group, name in (("", "bar.baz.f"), ("abc", "abc.bar.baz.f")):
        found = ModuleComponentsFinder("find_reg", group).find(None)
        assert [c.name for c in found if not c.validation_errors] == [name]
    assert "find_reg.broken" in caplog.text
    import find_reg.bar.baz

    assert module_relname(find_reg.bar.baz, find_reg) == "bar.baz"
    assert module_relname(find_reg, find_reg) == ""
    with pytest.raises(ValueError, match="is not a submodule"):
        module_relname(find_reg, find_reg.bar)


def test_a_file_in_the_place_of_a_component_is_told_how_it_is_run(files):
    files("job.py", "print('hi')\n")
    with pytest.raises(ComponentNotFoundException) as info:
        get_component("job.py")
    assert "utils.python --script job.py" in str(info.value)
    assert "`job.py:function`" in str(info.value)
    assert "http" not in str(info.value)


def test_a_component_file_without_the_name_of_one_is_told_those_it_has(files):
    files("job.py", COMPONENT)
    with pytest.raises(ComponentNotFoundException, match=r"`torchx run job\.py:f`"):
        get_component("job.py")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ComponentNotFoundException, match=r"there is no file `no/job\.py`"):
        get_component("no/job.py")


def test_errors_name_no_page_of_another_project():
    with pytest.raises(ComponentNotFoundException, match="`torchx plugins`") as info:
        get_component("no_such.component")
    assert "http" not in str(info.value)


def test_registered_components_stand_beside_the_built_in_ones_and_win(files, monkeypatch):
    files("find_acme.py", COMPONENT)
    files("find_utils.py", COMPONENT.replace("def f(", "def echo("))
    files("find_acme-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: find_acme\nVersion: 1\n")
    points = "[torchx.components]\nacme = find_acme\nutils = find_utils\n"
    files("find_acme-1.dist-info/entry_points.txt", points)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setattr("torchx.specs.finder._components", None)
    assert set(get_components()) == BUILTINS | {"acme.f"}
    assert get_component("acme.f").fn().name == "x"
    assert get_component("utils.echo").fn().name == "x"
    assert get_components()["utils.echo"].fn().name == "x"
    assert get_component("utils.sh").fn("ls").name == "sh"
    assert get_component("torchx.components.utils.echo").fn().name == "echo"
    with pytest.raises(ComponentNotFoundException, match=r"Did you mean `acme\.f`"):
        get_component("acme.g")


@pytest.fixture
def registrations(files, monkeypatch):
    """Registers components, three of them broken, under prefixes or none."""

    def register(*names: str) -> None:
        files("reg_good.py", COMPONENT)
        files("reg_exit.py", "import sys\nsys.exit(7)\n")
        files("reg_pkg/__init__.py")
        files("reg_pkg/exits.py", "import sys\nsys.exit(7)\n")
        files("find_r-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: find_r\nVersion: 1\n")
        targets = ("reg_good", "reg_exit", "reg_good:f", "no_such_find", "reg_pkg")
        lines = [f"{n} = {target}" for n, target in zip(names, targets, strict=True)]
        text = "\n".join(["[torchx.components]", *lines, ""])
        files("find_r-1.dist-info/entry_points.txt", text)
        monkeypatch.syspath_prepend(str(Path.cwd()))
        monkeypatch.setattr("torchx.specs.finder._components", None)

    return register


@pytest.mark.parametrize("names", [("a", "b", "c", "d", "e"), ("_0", "_1", "_2", "_3", "_4")])
def test_broken_registrations_are_left_out_of_the_list(registrations, caplog, names):
    registrations(*names)
    found = [name.removeprefix("a.") for name in get_components() if name not in BUILTINS]
    assert found == ["f"]
    for what in ("reg_exit", "reg_good:f", "no_such_find", "reg_pkg.exits"):
        assert caplog.text.count(what) >= 1
    assert "must be a module or its name" in caplog.text


def test_broken_registrations_without_prefix_hide_no_component(registrations, caplog):
    registrations("_0", "_1", "_2", "_3", "_4")
    assert get_component("f").fn().name == "x"
    assert caplog.text.count("left out") == 3


def test_a_broken_registration_is_told_to_who_asks_for_it(registrations):
    registrations("a", "b", "c", "d", "e")
    for name in ("b.f", "d.f", "e.exits.f"):
        with pytest.raises(ComponentNotFoundException, match="which cannot be imported"):
            get_component(name)
    with pytest.raises(AssertionError, match="must be a module or its name"):
        get_component("c.f")


# -- helper programs ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["memory://copied/new/b", "{tmp}/new/deep/b"])
@pytest.mark.parametrize("source", ["memory://copied/a", "{tmp}/a"])
def test_files_larger_than_the_buffer_are_copied_whole(source, target, tmp_path: Path):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    from torchx.apps.utils import copy_main

    data = bytes(range(256)) * 800  # 200 KiB
    source, target = (url.replace("{tmp}", str(tmp_path)) for url in (source, target))
    try:
        with fsspec.open(source, "wb") as f:
            f.write(data)
        copy_main.main(["--src", source, "--dst", target, "--bufsize", "1000"])
        with fsspec.open(target, "rb") as f:
            assert f.read() == data
        with pytest.raises(FileNotFoundError):
            copy_main.main(["--src", f"{source}-gone", "--dst", target])
        with fsspec.open(target, "rb") as f:
            assert f.read() == data
    finally:
        if fsspec.filesystem("memory").exists("/copied"):
            fsspec.filesystem("memory").rm("/copied", recursive=True)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--src", "gone", "--dst", "b"], 1, "copy: there is no file `gone`"),
        (["--src", ".", "--dst", "b"], 1, "copy: there is no file `.`"),
        (["--src", "nosuchfs://a", "--dst", "b"], 1, "copy: `nosuchfs://a` is not a path or a URL"),
        (["--src", "a", "--dst", "b", "--bufsize", "0"], 2, "`0` is no size"),
    ],
)
def test_what_cannot_be_copied_is_told_without_a_traceback(args, code, text, tmp_path: Path):
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    program = [sys.executable, "-m", "torchx.apps.utils.copy_main", *args]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir() == []


def test_a_copy_that_fails_leaves_no_part(tmp_path: Path):
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    from torchx.apps.utils import copy_main

    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inner", b"0" * 1000)
    archive.write_bytes(archive.read_bytes().replace(b"000", b"001"))  # its checksum is wrong now
    with pytest.raises(zipfile.BadZipFile):
        copy_main.copy(f"zip://inner::file://{archive}", str(tmp_path / "b"), bufsize=10)
    assert os.listdir(tmp_path) == ["a.zip"]


def test_files_are_copied_between_file_systems(tmp_path: Path, capsys):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    from torchx.apps.utils import copy_main

    (tmp_path / "a").write_text("data")
    copy_main.main(["--src", str(tmp_path / "a"), "--dst", str(tmp_path / "new/b")])
    assert (tmp_path / "new/b").read_text() == "data"
    copy_main.main(["--src", str(tmp_path / "a"), "--dst", "memory://x/y"])
    assert fsspec.filesystem("memory").cat("/x/y") == b"data"
    assert "copying" in capsys.readouterr().out


def test_the_programs_parse_their_options():
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    from torchx.apps.utils import booth_main, copy_main

    copied = copy_main.parse_args(["--src", "a", "--dst", "b"])
    assert vars(copied) == {"src": "a", "dst": "b", "bufsize": 65536}
    booth = booth_main.parse_args(["--x1", "1", "--x2", "3"])
    assert (booth.x1, booth.x2, booth.trial_idx) == (1.0, 3.0, 0)
    with pytest.raises(SystemExit, match="2"):
        copy_main.parse_args(["--src", "a", "--dst", "b", "--bufsize", "0"])


def test_the_booth_function_has_its_minimum(tmp_path: Path):
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    from torchx.apps.utils import booth_main
    from torchx.runtime.tracking import FsspecResultTracker

    booth_main.main(["--x1", "1", "--x2", "3", "--tracker_base", str(tmp_path / "t")])
    tracker = FsspecResultTracker(str(tmp_path / "t"))
    assert tracker[0] == tracker["0"] == {"booth_eval": 0.0}
    tracker["a/b"] = {"key": 1, "l2norm/mean": 0.5}
    assert tracker["a/b"] == {"key": 1, "l2norm/mean": 0.5}
    tracker.put("a/b", x=2)
    assert tracker["a/b"] == {"x": 2}
    assert FsspecResultTracker(str(tmp_path / "none"))["z"] == {}
    for base in (str(tmp_path / "t"), "memory://booth"):
        other = FsspecResultTracker(base)
        other["x/y"] = {"v": 1}
        other["1"] = {"v": 1}
        assert other["x"] == other["1/2"] == other["1/2/3"] == {}
    fsspec.filesystem("memory").rm("/booth", recursive=True)
    with pytest.raises(TypeError):
        tracker["bad"] = {1: 2}  # type: ignore[dict-item]  # that is the point
    with pytest.raises(TypeError):
        tracker["bad"] = {"a": object()}  # type: ignore[dict-item]  # as above
    assert tracker["bad"] == {}


class TestBase(ComponentTestCase):
    def test_components_are_validated_and_run(self) -> None:
        self.validate(utils, "echo")
        with self.assertRaises(ComponentValidationException):  # noqa: PT027 - as its users write
            self.validate(utils, "InvalidInput")
        status = self.run_component(utils.echo, timeout=20)
        assert status is not None
        assert status.state == specs.AppState.SUCCEEDED
        with self.assertRaises(ValueError):  # noqa: PT027 - as its users write
            self.run_component(utils.echo, scheduler_params={"cache_size": 0})
