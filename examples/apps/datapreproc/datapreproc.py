"""Makes a data set of images uniform. Run it with::

torchx run utils.python --script datapreproc/datapreproc.py -- --output_path=DIR

Reads a zip archive of images, one folder for each class, from wherever fsspec can read; makes them
RGB of one size with full contrast; writes ``images.tar.gz`` into a folder that fsspec can write to,
for ``lightning/train.py --data_path``. Needs fsspec and Pillow (no NumPy, no torchvision).
"""

import argparse
import io
import sys
import tarfile
import tempfile
import zipfile
from pathlib import PurePosixPath
from typing import IO

import fsspec
from PIL import Image, ImageOps, UnidentifiedImageError

SIZE = (64, 64)


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="makes a data set of images uniform")
    parser.add_argument("--input_path", help="URL of the zip archive; noise if not given")
    parser.add_argument("--output_path", required=True, help="URL of the folder for the result")
    parser.add_argument("--limit", type=int, help="how many images to take; all if not given")
    return parser.parse_args(argv)


def normalize(data: bytes) -> bytes:
    """The image as a PNG file of the common form.

    Raises:
        UnidentifiedImageError: if it is no image.
    """
    with Image.open(io.BytesIO(data)) as image:
        uniform = ImageOps.autocontrast(image.convert("RGB").resize(SIZE))
    out = io.BytesIO()
    uniform.save(out, "PNG")
    return out.getvalue()


def process(source: zipfile.ZipFile, target: tarfile.TarFile, limit: int | None) -> int:
    """Adds each image of the one archive to the other as ``class/name.png``.

    Returns:
        How many images there were.
    """
    count = 0
    for entry in source.infolist():
        if entry.is_dir() or count == limit:
            continue
        try:
            data = normalize(source.read(entry))
        except UnidentifiedImageError:
            sys.stderr.write(f"skipping {entry.filename}, which is no image\n")
            continue
        # an archive can name any path: only the last folder of it is of interest
        parts = [p for p in PurePosixPath(entry.filename).parts if p not in ("/", "..")]
        info = tarfile.TarInfo(str(PurePosixPath(*parts[-2:]).with_suffix(".png")))
        info.size = len(data)
        target.addfile(info, io.BytesIO(data))
        count += 1
    return count


def make_noise(file: IO[bytes], classes: int = 2, images: int = 8) -> None:
    """Writes an archive of random images, to try this out without any data."""
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(classes * images):
            out = io.BytesIO()
            Image.effect_noise((80, 80), 50).save(out, "JPEG")
            archive.writestr(f"class{number % classes}/{number}.jpg", out.getvalue())


def main(argv: list[str]) -> None:
    """Downloads, converts, uploads."""
    args = parse_args(argv)
    with tempfile.TemporaryFile() as source, tempfile.NamedTemporaryFile() as result:
        if args.input_path is None:
            make_noise(source)
        else:
            with fsspec.open(args.input_path, "rb") as remote:
                while data := remote.read(2**20):
                    source.write(data)
        with (
            zipfile.ZipFile(source) as images,
            tarfile.open(fileobj=result, mode="w:gz") as archive,
        ):
            count = process(images, archive, args.limit)
        result.flush()
        fs, folder = fsspec.url_to_fs(args.output_path)
        fs.makedirs(folder, exist_ok=True)
        fs.put_file(result.name, f"{folder}/images.tar.gz")
    sys.stdout.write(f"wrote {count} images to {args.output_path}/images.tar.gz\n")


if __name__ == "__main__":
    main(sys.argv[1:])
