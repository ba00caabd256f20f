"""Programs that stand in for LSF's."""

from tests.lsf_programs import lsf_programs  # noqa: F401 - a fixture
