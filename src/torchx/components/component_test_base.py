"""Base class for tests of components."""

import os
import shutil
import tempfile
import time
import unittest
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torchx
from torchx.runner import get_runner
from torchx.specs import AppDef, AppStatus
from torchx.specs.builders import _create_args_parser
from torchx.specs.finder import get_component


class ComponentTestCase(unittest.TestCase):
    """Gives tests a folder of their own, and checks and runs components."""

    def setUp(self) -> None:
        """Makes ``test_dir`` and changes to the folder of the installed package."""
        self.test_dir = tempfile.mkdtemp("torchx_component_test")
        self.old_cwd = os.getcwd()
        os.chdir(os.path.dirname(os.path.abspath(torchx.__file__)))

    def tearDown(self) -> None:
        """Removes ``test_dir`` and restores the working directory."""
        os.chdir(self.old_cwd)
        shutil.rmtree(self.test_dir, ignore_errors=True)

    def validate(self, module: ModuleType, function_name: str) -> None:
        """Fails if the component breaks the rules for components or has no help."""
        path = os.path.abspath(str(module.__file__))
        component = get_component(f"{path}:{function_name}")
        with self.assertRaises(SystemExit):  # noqa: PT027 - works without pytest
            _create_args_parser(component.fn).parse_args(["--help"])

    def run_component(
        self,
        component: Callable[..., AppDef],
        args: dict[str, Any] | None = None,
        scheduler_params: dict[str, Any] | None = None,
        scheduler: str = "local_cwd",
        interval: float = 0.1,
        timeout: float = 1,
    ) -> AppStatus | None:
        """Runs the component's app.

        Args:
            scheduler_params: keywords for the scheduler's factory.
            interval: seconds between polls of the app's state.
            timeout: seconds after which to stop polling.

        Returns:
            The last status, which may not be terminal.
        """
        app = component(**(args or {}))
        with get_runner(**(scheduler_params or {})) as runner:
            handle = runner.run(app, scheduler)
            deadline = time.monotonic() + timeout
            status = runner.status(handle)
            while status is not None and not status.is_terminal() and time.monotonic() < deadline:
                time.sleep(interval)
                status = runner.status(handle)
            return status
