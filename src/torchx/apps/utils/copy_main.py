"""Copies a file; both ends may be fsspec URLs."""

import argparse
import sys


def main(argv: list[str] | None = None) -> None:
    """Command line of ``utils.copy``."""
    parser = argparse.ArgumentParser(description="copies a file between fsspec file systems")
    parser.add_argument("--src", required=True, help="path or URL of the file")
    parser.add_argument("--dst", required=True, help="path or URL to copy it to")
    parser.add_argument("--bufsize", type=int, default=65536, help="bytes read at a time")
    args = parser.parse_args(argv)
    copy(args.src, args.dst, args.bufsize)


def copy(src: str, dst: str, bufsize: int = 65536) -> None:
    """Copies the file; makes the folder for it.

    Args:
        bufsize: bytes read at a time, where the file system cannot copy by itself.
    """
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as err:
        msg = "copying needs fsspec, install it with: pip install 'torchx[fsspec]'"
        raise ModuleNotFoundError(msg, name=err.name) from None
    src_fs, src_path = url_to_fs(src)
    dst_fs, dst_path = url_to_fs(dst)
    sys.stdout.write(f"copying {src} to {dst}\n")
    dst_fs.makedirs(dst_fs._parent(dst_path), exist_ok=True)
    if type(src_fs) is type(dst_fs) and src_fs.storage_options == dst_fs.storage_options:
        src_fs.copy(src_path, dst_path)
        return
    with src_fs.open(src_path, "rb") as source, dst_fs.open(dst_path, "wb") as target:
        while data := source.read(bufsize):
            target.write(data)


if __name__ == "__main__":
    main()
