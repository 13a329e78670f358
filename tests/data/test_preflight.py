"""What breaks workers is found before they start, and named."""

from __future__ import annotations

import functools
import multiprocessing
import pickle
import sys
import threading
import types

import numpy as np
import pytest
import torch

from yolo_rocm.data import preflight
from yolo_rocm.data.preflight import check_before_start, needs_main_module
from yolo_rocm.errors import LoaderError

from ..tables import each_row


class Data:
    """Holds whatever a test gives it."""

    def __init__(self, **held) -> None:
        self.__dict__.update(held)


class Careful(Data):
    """Leaves out what cannot be sent."""

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if not callable(value)}


class OnGpu(torch.Tensor):
    """Says that it is on a GPU, where there is none."""

    device = property(lambda self: torch.device("cuda:0"))


def top_level(value):
    return value


def made_inside():
    def nested(value):
        return value

    return nested


def looped():
    one, two = Data(), Data()
    one.two, two.one, one.late = two, one, [lambda: 0]
    return one


def check(data, **settings) -> bool:
    return check_before_start({"dataset": data}, method="spawn", **settings)


CULPRITS = [
    (Data(fine=1, transforms=[len, Data(fn=lambda x: x)]), "dataset.transforms", "lambda"),
    (Data(base=Data(table={"a": {"b": made_inside()}})), "dataset.base.table", "made_inside.<locals>.nested"),
    (Data(lock=threading.Lock()), "dataset.lock", "_thread.lock"),
    (Data(weights=torch.zeros(2, requires_grad=True) * 2), "dataset.weights", r"detach\(\) it"),
    (looped(), "dataset.late", "lambda"),
    (lambda: 0, "dataset", "lambda"),
]


@each_row(("data", "path", "cause"), CULPRITS)
def test_the_attribute_that_cannot_be_pickled_is_named(data, path, cause):
    with pytest.raises(LoaderError, match=rf"^{path} cannot be sent .*{cause}.*workers=0"):
        check(data)


def test_what_can_be_sent_is_neither_moved_nor_copied():
    looping = Data(tensor=torch.zeros(1000), array=np.zeros(3), net=torch.nn.Linear(2, 2), call=top_level)
    looping.itself = looping
    for data in (looping, Careful(fn=lambda: 0), functools.partial(top_level, 1), list(range(5000))):
        assert not check(data)
    assert not looping.tensor.is_shared()


def test_a_tensor_on_a_gpu_is_refused():
    tensor = torch.Tensor._make_subclass(OnGpu, torch.zeros(2))
    with pytest.raises(LoaderError, match=r"^dataset\.cache cannot be sent .* a tensor on cuda:0; .*\.cpu\(\)"):
        check(Data(cache={"x": tensor}))


def test_what_multiprocessing_shares_can_be_sent_as_foreseen():
    context = multiprocessing.get_context("spawn")
    pipe, _ = context.Pipe(duplex=False)
    data = Data(pipe=pipe, lock=context.Lock(), value=context.Value("i", 1), event=context.Event())
    check(data)
    with pytest.raises(RuntimeError, match="through inheritance"):
        pickle.dumps(data.lock)  # nothing of the attempt stays behind


@pytest.fixture
def of_main(monkeypatch):
    """A class and a function of a main script without a file, as in a notebook."""
    main = types.ModuleType("__main__")
    exec("class Mine:\n    pass\n\ndef collate(batch):\n    return batch\n", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


def test_the_script_is_needed_for_what_it_defines_alone(of_main, monkeypatch):
    for value in (of_main.Mine(), [1, {"x": of_main.collate}], [Data(), of_main.Mine], Data(a=(of_main.Mine(),))):
        assert needs_main_module(value)
    assert not needs_main_module(["__main__", "Mine", Data, "/a/__main__/b.jpg", {"__mp_main__": top_level}])
    parts = {"dataset": Data(), "collate_fn": Data(a=[of_main.collate])}
    with pytest.raises(LoaderError, match=r"notebook.*Workers need it for collate_fn: __main__\.collate\."):
        check_before_start(parts, method="spawn")
    assert not check_before_start(parts, method="fork")
    monkeypatch.setattr(preflight, "main_problem", lambda: None)
    assert check_before_start(parts, method="spawn")


@pytest.mark.parametrize("hip", ["5.2", None])
def test_no_fork_after_the_gpu_runtime_has_started(monkeypatch, hip):
    check_before_start({}, method="fork")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.version, "hip", hip)
    check_before_start({}, method="forkserver")
    with pytest.raises(LoaderError, match=f"cannot be forked any more: {'HIP' if hip else 'CUDA'} .* spawn"):
        check_before_start({}, method="fork")


def test_lists_that_are_shared_are_not_pickled():
    data = Data(labels=[lambda: 0])
    with pytest.raises(LoaderError, match=r"^dataset\.labels cannot be sent"):
        check(data)
    assert not check(data, shared=[data.labels])
