"""Shows which pixels made a model decide as it did. Run it with::

torchx run utils.python --script lightning/interpret.py -- --load_path=CKPT --output_path=DIR

Needs lightning, captum and Pillow. Writes a PNG file for each image: the image at the left, the
pixels that spoke for the decision at the right (integrated gradients).
"""

import argparse
import io
import sys

import fsspec
import torch
from captum.attr import IntegratedGradients
from data import Images
from model import Classifier
from PIL import Image


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="shows what a model looks at")
    parser.add_argument("--load_path", required=True, help="URL of the checkpoint")
    parser.add_argument("--output_path", required=True, help="URL of the folder for the pictures")
    parser.add_argument("--data_path", help="URL of the images; they are made up if not given")
    parser.add_argument("--num_samples", type=int, default=4, help="how many images to look at")
    return parser.parse_args(argv)


def to_png(image: torch.Tensor, attribution: torch.Tensor) -> bytes:
    """Both (3 x height x width) side by side, the second as one bright channel."""
    heat = attribution.sum(0).clamp(min=0)
    heat = (heat / heat.max().clamp(min=1e-9)).expand_as(image)
    pixels = (torch.cat([image, heat], dim=2).clamp(0, 1) * 255).byte().permute(1, 2, 0)
    height, width, _ = pixels.shape
    out = io.BytesIO()
    data = bytes(pixels.flatten().tolist())
    Image.frombytes("RGB", (width, height), data).save(out, "PNG")
    return out.getvalue()


def main(argv: list[str]) -> None:
    """Attributes the decision on each image."""
    args = parse_args(argv)
    model = Classifier.load_from_checkpoint(args.load_path, map_location="cpu").eval()
    images, labels = Images(args.data_path, 1, args.num_samples).data.tensors
    with torch.no_grad():
        decisions = model(images).argmax(1)
    attributions = IntegratedGradients(model).attribute(images, target=decisions, n_steps=20)
    fs, folder = fsspec.url_to_fs(args.output_path)
    fs.makedirs(folder, exist_ok=True)
    for n, (image, attribution) in enumerate(zip(images, attributions.detach(), strict=True)):
        name = f"image{n}_is_{labels[n]}_said_{decisions[n]}.png"
        fs.pipe_file(f"{folder}/{name}", to_png(image, attribution))
        sys.stdout.write(f"wrote {args.output_path}/{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
