"""The file that holds what is in memory: found, told from others, written where there is none, seen to be stale."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from yolo_rocm.errors import ExportError
from yolo_rocm.ultralytics_hooks.weights import MemoryWeights

from ..small_model import small_model


@pytest.fixture
def file(tmp_path) -> Path:
    from ultralytics import YOLO

    torch.manual_seed(0)
    YOLO(small_model()).save(tmp_path / "small.pt")
    return tmp_path / "small.pt"


@pytest.fixture
def yolo(file):
    from ultralytics import YOLO

    return YOLO(file)


def state(path: Path) -> dict[str, torch.Tensor]:
    from ultralytics import YOLO

    return YOLO(path).model.state_dict()


def first(yolo) -> torch.nn.Parameter:
    return yolo.model.model[0].conv.weight


def fused(yolo):
    yolo.model.fuse(verbose=False)


def fused_by_validation(yolo):
    with torch.inference_mode():
        yolo.model.fuse(verbose=False)


def in_half(yolo):
    yolo.model.half()


@pytest.mark.parametrize("change", [fused, fused_by_validation, in_half])
def test_what_ultralytics_does_to_a_model_that_predicts_is_no_change(yolo, file, change):
    weights = MemoryWeights()
    assert weights.file(yolo).path == file
    change(yolo)
    assert weights.file(yolo).path == file
    assert weights.file(yolo).path == file


def in_place(yolo):
    with torch.no_grad():
        first(yolo).mul_(1.001)


def loaded(yolo):
    yolo.model.load_state_dict({name: value * 2 for name, value in yolo.model.state_dict().items()})


def another_parameter(yolo):
    yolo.model.model[0].conv.weight = torch.nn.Parameter(first(yolo) * 2)


def other_data(yolo):
    first(yolo).data = first(yolo).data * 2


def statistics(yolo):
    yolo.model.model[0].bn.running_mean.add_(1)


def another_activation(yolo):
    yolo.model.model[0].act = torch.nn.ReLU()


def names(yolo):
    yolo.model.names[0] = "somebody"


def a_prompt(yolo):
    yolo.model.txt_feats = torch.ones(2)


CHANGES = [in_place, loaded, another_parameter, other_data, statistics, another_activation, names, a_prompt]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_and_saved(yolo, file, change):
    weights = MemoryWeights()
    assert weights.file(yolo).path == file
    change(yolo)
    path = weights.file(yolo).path
    assert path != file
    assert weights.file(yolo).path == path
    kept = state(path)
    assert kept.keys() == yolo.model.state_dict().keys()
    for name, value in yolo.model.state_dict().items():
        torch.testing.assert_close(kept[name], value, rtol=0, atol=0)


def test_each_change_has_a_file_of_its_own_and_only_the_newest_is_kept(yolo):
    weights = MemoryWeights()
    in_place(yolo)
    old = weights.file(yolo).path
    in_place(yolo)
    new = weights.file(yolo).path
    assert new != old
    assert not old.exists()
    torch.testing.assert_close(state(new)["model.0.conv.weight"], first(yolo).detach(), rtol=0, atol=0)
    weights.close()
    assert not new.parent.exists()
    assert not weights._held


def test_weights_that_were_never_saved():
    from ultralytics import YOLO

    yolo = YOLO(small_model())
    weights = MemoryWeights()
    kept = state(weights.file(yolo).path)
    torch.testing.assert_close(kept["model.0.conv.weight"], first(yolo).detach(), rtol=0, atol=0)


def test_a_file_with_other_weights_under_the_same_name(yolo, file):
    """A training may write on, in another process."""
    from ultralytics import YOLO

    weights, before = MemoryWeights(), first(yolo).detach().clone()
    assert weights.file(yolo).path == file
    torch.manual_seed(1)
    YOLO(small_model()).save(file)
    path = weights.file(yolo).path
    assert path != file
    torch.testing.assert_close(state(path)["model.0.conv.weight"], before, rtol=0, atol=0)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"no weights")], ids=["gone", "damaged"])
def test_a_file_that_cannot_be_read(yolo, file, damage):
    weights = MemoryWeights()
    assert weights.file(yolo).path == file
    damage(file)
    assert weights.file(yolo).path != file


def test_weights_that_were_loaded_into_it(yolo, tmp_path):
    from ultralytics import YOLO

    weights = MemoryWeights()
    weights.file(yolo)
    torch.manual_seed(2)
    other = tmp_path / "other.pt"
    YOLO(small_model()).save(other)
    yolo.load(other)
    path = weights.file(yolo).path
    torch.testing.assert_close(state(path)["model.0.conv.weight"], first(yolo).detach(), rtol=0, atol=0)


def test_what_cannot_be_saved_is_told(yolo):
    yolo.model.extra = lambda: None
    in_place(yolo)
    with pytest.raises(ExportError, match="cannot be saved"):
        MemoryWeights().file(yolo)
