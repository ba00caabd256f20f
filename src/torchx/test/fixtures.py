"""The names of release 0.7 for ``torchx.testing.fixtures``."""

from torchx.testing.distributed import DistributedTestCase
from torchx.testing.fixtures import IS_CI, IS_MACOS, TestWithTmpDir, write_shell_script

__all__ = [
    "IS_CI",
    "IS_MACOS",
    "DistributedTestCase",
    "TestWithTmpDir",
    "write_shell_script",
]
