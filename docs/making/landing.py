"""The first page of the web site: every page in its group, with a line on what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Group -> page -> what it is for. A page that is in no group fails the strict build.
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Start here": {
        "docs/start/rx5600xt.md": "from a bare machine to the first report, for RX 5000",
        "docs/start/rx7900xtx_windows.md": "the same for Radeon RX 7000 and 9000, in PowerShell",
        "docs/start/strix_halo.md": "the same for the GPU inside the processor",
        "docs/start/mi300x.md": "one GPU, then eight, then four machines",
        "docs/start/own_script.md": "nothing in it has to change",
    },
    "Install": {
        "README.md": "what it is, what to expect of which card, and when not to use it",
        "docs/install.md": "which torch for which card, and the commands",
        "docs/troubleshooting.md": "the doctor, and every failure it knows, by what the log shows",
    },
    "Use": {
        "docs/training.md": "ways in, resuming, several GPUs, the report",
        "docs/predict.md": "the fastest engine that finds what torch finds",
        "docs/inference.md": "validation and prediction through our engines: fused blocks, graphs",
        "docs/loading.md": "workers that report a hang, for any data set",
        "docs/clusters.md": "torchrun, SLURM, Kubernetes; what follows when a machine fails",
        "examples/README.md": "scripts that show one thing each",
    },
    "Reference": {
        "docs/commands.md": "every command of `yolo-rocm` with its options",
        "docs/api.md": "the public functions, classes and errors of `yolo_rocm`",
        "docs/presets.md": "one for every card, and all keys",
        "docs/environment.md": "ours, and those that presets set",
        "docs/engines.md": "which algorithm computes which layer",
        "docs/between_convolutions.md": "BatchNorm, activations, and the memory of a step",
        "docs/glossary.md": "the words of the code, its messages and these pages",
    },
    "Numbers": {
        "docs/benchmarks.md": "with hardware, versions, date and command",
        "docs/tested.md": "and how to certify your card",
    },
    "Developers": {
        "CONTRIBUTING.md": "set-up, tests, what a change needs",
        "docs/design.md": "the rooms, the seam, three walks through the code",
        "docs/extend.md": "with an example of each",
        "CHANGELOG.md": "what is new",
        "SECURITY.md": "what is trusted, and how to report a hole",
    },
}
# Names in the navigation of pages whose own title would not tell.
NAMES: Final = {"README.md": "Overview", "docs/api.md": "Python API", "docs/inference.md": "Networks without gradients"}

_INTRODUCTION: Final = """\
# yolo_rocm

Train Ultralytics YOLO on AMD GPUs, even where MIOpen is broken: every convolution and BatchNorm of the process is
computed by code that needs no MIOpen, in less memory. Your model, your checkpoints and your Ultralytics code stay as
they are.

```bash
yolo-rocm setup                                    # which torch for this card, and how
yolo-rocm doctor                                   # will training work here
yolo-rocm train model=yolo11n.pt data=coco8.yaml   # under the preset of this card
```
"""


def landing(titles: Mapping[str, str]) -> str:
    """Return the page, in Markdown as MyST has it.

    Args:
        titles: The title of each page in `GROUPS`.
    """
    parts = [_INTRODUCTION]
    for group, pages in GROUPS.items():
        names = {page: NAMES.get(page, titles[page]) for page in pages}
        parts.append(f"## {group}\n")
        parts += [f"- [{names[page]}]({page}): {purpose}" for page, purpose in pages.items()]
        entries = "\n".join(f"{names[page]} <{page}>" for page in pages)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {group}\n\n{entries}\n```\n")
    return "\n".join(parts)
