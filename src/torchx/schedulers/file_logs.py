"""For authors of schedulers: log files of replicas, read and followed in one thread."""

from torchx.schedulers._core.file_logs import EndDetector, PathsOf, follow, read_now

__all__ = ["EndDetector", "PathsOf", "follow", "read_now"]
