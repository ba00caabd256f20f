"""The tree of errors: parents that old `except` clauses name, and the paths that clients import."""

import importlib

import pytest

from torchx import errors

PARENTS = {
    "UnknownApp": (errors.UnknownName, KeyError, ValueError),
    "LogsNotFound": (errors.InvalidInput, RuntimeError),
    "ProgramNotFound": (errors.BackendUnavailable, OSError),
    "CommandFailed": (errors.TorchXError, RuntimeError),
    "NotInstalled": (errors.TorchXError, ModuleNotFoundError),
    "SchedulerNotInstalled": (errors.NotInstalled,),
    "MissingMountOption": (errors.InvalidInput, KeyError),
    "ConfigFileNotFound": (errors.InvalidInput, FileNotFoundError),
    "RootMissing": (errors.TorchXError, AssertionError),
}

EARLIER_PATHS = [
    ("torchx.runner.config", "ConfigFileError"),
    ("torchx.runner.config", "ConfigFileNotFound"),
    ("torchx.schedulers", "SchedulerNotInstalled"),
    ("torchx.specs.api", "AppStatusError"),
    ("torchx.specs", "InvalidRunConfigException"),
    ("torchx.specs", "MalformedAppHandleException"),
    ("torchx.specs", "UnknownAppException"),
    ("torchx.specs", "UnknownSchedulerException"),
    ("torchx.specs.finder", "ComponentNotFoundException"),
    ("torchx.specs.finder", "ComponentValidationException"),
    ("torchx.specs.overlays", "OverlayTypeError"),
    ("torchx.tracker.backend.fsspec", "ConfigMissing"),
    ("torchx.tracker.backend.fsspec", "RootMissing"),
    ("torchx.tracker.mlflow", "AmbiguousRun"),
]


@pytest.mark.parametrize("name", PARENTS)
def test_an_error_has_the_parents_that_callers_may_catch(name: str) -> None:
    for parent in PARENTS[name]:
        assert issubclass(getattr(errors, name), parent)


@pytest.mark.parametrize(("module", "name"), EARLIER_PATHS)
def test_an_error_is_importable_where_it_was_defined_before(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is getattr(errors, name)


def test_what_is_not_installed_names_the_extra_that_brings_it() -> None:
    err = errors.NotInstalled("this needs x", name="x", extra="y")
    assert str(err) == "this needs x; install it with: pip install 'torchx[y]'"
    assert (err.name, err.extra) == ("x", "y")
    assert str(errors.NotInstalled("x is gone")) == "x is gone"


def test_a_failed_command_says_what_its_program_said_or_its_exit_code() -> None:
    assert str(errors.CommandFailed("sbatch", 1, "bad partition")) == (
        "`sbatch` failed: bad partition"
    )
    err = errors.CommandFailed("sbatch", -9, "")
    assert str(err) == "`sbatch` failed: exit code -9 and no message"
    assert (err.program, err.exit_code) == ("sbatch", -9)


def test_an_unknown_app_is_shown_without_quotes() -> None:
    assert str(errors.UnknownApp("no app `x`")) == "no app `x`"
