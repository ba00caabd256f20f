"""For authors of schedulers: backends that are reached by programs, without a shell."""

from torchx.schedulers._core.command import BackendPrograms, stderr_message

__all__ = ["BackendPrograms", "stderr_message"]
