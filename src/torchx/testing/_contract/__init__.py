"""The parts of ``torchx.testing.scheduler_suite``, one subject each."""

try:
    import pytest
except ModuleNotFoundError as err:
    if err.name != "pytest":
        raise
    msg = "the scheduler suite needs pytest, install it with: pip install 'torchx[test]'"
    raise ModuleNotFoundError(msg, name="pytest") from None

_PARTS = (
    "jobs",
    "requests",
    "life",
    "retries",
    "logs",
    "merged",
    "states",
    "faults",
    "interruptions",
)

# failed asserts of the suite show their values, as those of a test file do
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))
