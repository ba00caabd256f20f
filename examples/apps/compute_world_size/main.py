"""A minimal distributed program of several modules. Run it with one of::

torchx run dist.ddp -j 1x2 --script compute_world_size/main.py
torchx run dist.ddp -j 2x2 -m compute_world_size.main

Arguments are overrides of ``config/defaults.yaml``: ``-- throws=true`` makes it fail.
"""

import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

if not __package__:  # run as a script, with this folder on the path and not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compute_world_size.module.util import compute_world_size, read_config


@record
def main() -> None:
    """Reads the configuration and computes."""
    compute_world_size(read_config(sys.argv[1:]))


if __name__ == "__main__":
    main()
