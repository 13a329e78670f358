"""Containerfiles: the commands that `yolo-rocm setup` prints, from the same table, as images for an ordinary user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from yolo_rocm.hardware.libraries import OPENCV_PACKAGES
from yolo_rocm.install.shell import line
from yolo_rocm.install.table import TorchStack, table

USER: Final = "yolo"
SOURCE: Final = "/opt/yolo-rocm"
# What pip needs of a clone to build the package.
_COPIED: Final = ("pyproject.toml", "README.md", "LICENSE", "configs", "yolo_rocm")

# Triton builds the C code that launches its kernels on the machine; Python's image has the headers.
_COMPILER: Final = ("gcc", "libc6-dev")


class Image(NamedTuple):
    """An image: its stack, the target that it is built for unless another is given, its purpose, what else is in it."""

    stack: str
    target: str
    purpose: str
    packages: tuple[str, ...] = ()


IMAGES: Final = {
    "cpu": Image("cpu", "", "no GPU, for trying it out"),
    "rocm": Image("multi-arch", "gfx1100", "AMD GPUs; the target of the card is a build argument", _COMPILER),
    "rx5000": Image("rocm5.2", "", "RX 5000 cards"),
}


def containerfile(name: str) -> str:
    """Return a Containerfile as text."""
    image = IMAGES[name]
    return "\n".join(_lines(image, table().stacks[image.stack])) + "\n"


def _lines(image: Image, stack: TorchStack) -> Iterator[str]:
    option, index = stack.options
    yield f"# {stack.title}: {image.purpose}."
    yield "# Made by docs/generate.py from configs/install.yaml. How to build and to run it: docs/containers.md."
    yield f"FROM docker.io/library/python:{stack.pythons[0]}-slim"
    yield ""
    compiler = "a compiler for Triton's launchers; " if image.packages else ""
    yield f"# What OpenCV loads, which Ultralytics imports; {compiler}and an ordinary user."
    libraries = " ".join((*OPENCV_PACKAGES, *image.packages))
    yield (
        f"RUN apt-get update && apt-get install --yes --no-install-recommends {libraries} && "
        "rm -rf /var/lib/apt/lists/*"
    )
    yield f"RUN useradd --create-home --uid 1000 {USER} && mkdir /data && chown {USER} /data"
    yield ""
    yield "# torch and torchvision, in a layer of their own: it is large, and changes seldom."
    yield f"ARG INDEX={index}"
    if image.target:
        yield f"ARG TARGET={image.target}"
    packages = (each.replace("{extras}", "device-$TARGET") for each in stack.packages)
    # Between double quotes, because a shell is to put the argument in.
    words = (f'"{each}"' if "$" in each or line([each], "linux") != each else each for each in packages)
    yield f"RUN pip install --no-cache-dir {option} $INDEX {' '.join(words)}"
    yield ""
    yield "# This package and Ultralytics, which keep that torch."
    for path in _COPIED:
        yield f"COPY {path} {SOURCE}/{path}"
    yield f'RUN pip install --no-cache-dir "{SOURCE}[{",".join(stack.extras)}]"'
    yield ""
    yield f"USER {USER}"
    yield "WORKDIR /data"
    yield 'ENTRYPOINT ["yolo-rocm"]'
    yield 'CMD ["doctor"]'
