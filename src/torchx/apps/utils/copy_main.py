"""Copies a file; both ends may be fsspec URLs."""

import argparse
import sys

from torchx._filesystem import filesystem


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Options of ``utils.copy``; those of this process for ``None``."""
    parser = argparse.ArgumentParser(description="copies a file between fsspec file systems")
    parser.add_argument("--src", required=True, help="path or URL of the file")
    parser.add_argument("--dst", required=True, help="path or URL to copy it to")
    parser.add_argument("--bufsize", type=int, default=65536, help="bytes read at a time")
    args = parser.parse_args(argv)
    if args.bufsize < 1:
        parser.error(f"--bufsize: `{args.bufsize}` is no size, give 1 or more")
    return args


def main(argv: list[str] | None = None) -> None:
    """Command line of ``utils.copy``."""
    args = parse_args(argv)
    copy(args.src, args.dst, args.bufsize)


def copy(src: str, dst: str, bufsize: int = 65536) -> None:
    """Copies the file; makes the folder for it.

    Args:
        bufsize: bytes read at a time, where the file system cannot copy by itself.

    Raises:
        FileNotFoundError: if there is no such file.
        ModuleNotFoundError: if fsspec is not installed.
    """
    src_fs, src_path = filesystem(src)
    dst_fs, dst_path = filesystem(dst)
    if not src_fs.isfile(src_path):
        msg = f"there is no file `{src}`; give one file, folders and patterns are not copied"
        raise FileNotFoundError(msg)
    try:
        dst_fs.makedirs(dst_fs._parent(dst_path), exist_ok=True)
    except FileExistsError:  # some file systems do not know `exist_ok`
        pass
    if type(src_fs) is type(dst_fs) and src_fs.storage_options == dst_fs.storage_options:
        _say(f"copying {src} to {dst} within the file system")
        src_fs.copy(src_path, dst_path)
        return
    _say(f"copying {src} to {dst} in pieces of {bufsize} bytes")
    with src_fs.open(src_path, "rb") as source:
        try:
            with dst_fs.open(dst_path, "wb") as target:
                while data := source.read(bufsize):
                    target.write(data)
        except BaseException:  # closing it kept the part that was written
            if dst_fs.exists(dst_path):
                dst_fs.rm(dst_path)
            raise


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def _run() -> None:
    try:
        main()
    except (OSError, ValueError, ImportError) as err:
        sys.stderr.write(f"copy: {err}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    _run()
