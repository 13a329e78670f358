"""Load any PyTorch data set with `create_dataloader`, and train something that is not YOLO.

The loader is a `torch.utils.data.DataLoader`. Its workers have never seen the GPU, are watched, and are
replaced when they die; `seed` makes order and augmentation repeatable.
"""

import sys
from pathlib import Path

import cv2
import torch
from torch.utils.data import Dataset

import yolo_rocm


class Brightness(Dataset):
    """Images of a folder, each with its mean brightness to be learned."""

    def __init__(self, folder: Path) -> None:
        self.files = [str(path) for path in sorted(folder.rglob("*.jpg"))]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = torch.from_numpy(cv2.resize(cv2.imread(self.files[index]), (32, 32))).permute(2, 0, 1) / 255
        return image, image.mean()


if __name__ == "__main__":  # workers import this file again
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    dataset = Brightness(folder.parent if folder.is_file() else folder)
    # share: the list of files is in memory once for all workers, however many there are
    loader = yolo_rocm.create_dataloader(dataset, 4, shuffle=True, seed=0, num_workers=2, share=["files"])

    yolo_rocm.seed_everything(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.SiLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with yolo_rocm.patched():  # convolutions on the GPU without MIOpen; nothing happens on a CPU
        for epoch in range(10):
            losses = []
            for images, wanted in loader:
                loss = (model(images.to(device)).squeeze(1) - wanted.to(device)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch + 1} loss {sum(losses) / len(losses):.4f}")
