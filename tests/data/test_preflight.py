"""What breaks workers is found before they start, and named."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import pickle
import sys
import threading
import tracemalloc
import types
from collections import namedtuple

import numpy as np
import pytest
import torch

from yolo_rocm.data import preflight
from yolo_rocm.data.preflight import check_before_start, method_problem, needs_main_module, pickle_problem, shm_problem
from yolo_rocm.errors import LoaderError

from ..tables import each_row

Pair = namedtuple("Pair", "left right")


class Data:
    """Holds whatever a test gives it."""

    def __init__(self, **held) -> None:
        self.__dict__.update(held)


class Slots:
    """Has no dictionary."""

    __slots__ = ("kept",)

    def __init__(self, kept) -> None:
        self.kept = kept


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

    class Local:
        pass

    return nested, Local


def looped():
    one, two = Data(), Data()
    one.two, two.one, one.late = two, one, [lambda: 0]
    return one


NESTED, LOCAL = made_inside()
HERE = "test_preflight.py:"
CULPRITS = [
    (Data(transforms=[len, max, Data(fn=lambda x: x)]), "dataset.transforms[2].fn", f"a lambda defined in {HERE}"),
    (Data(table={"a": {"b": NESTED}}), "dataset.table['a']['b']", "function made_inside.<locals>.nested defined in"),
    (Data(lock=threading.Lock()), "dataset.lock", "_thread.lock"),
    (Data(part=functools.partial(top_level, 1, key=lambda: 0)), "dataset.part.keywords['key']", "a lambda"),
    (Data(part=functools.partial(lambda: 0)), "dataset.part.func", "a lambda"),
    (Data(bound=Data(fn=NESTED).__init__), "dataset.bound.__self__.fn", "nested"),
    (Data(item=LOCAL()), "dataset.item", "an object of type tests.data.test_preflight.made_inside.<locals>.Local"),
    (Data(lazy=(i for i in range(3))), "dataset.lazy", "generator"),
    (Data(slots=Slots((0, os))), "dataset.slots.kept[1]", "module"),
    (Data(pair=Pair(1, NESTED)), "dataset.pair[1]", "nested"),
    (Data(objects=np.array([1, NESTED], dtype=object)), "dataset.objects", "nested"),
    (Data(bag={Data, NESTED}), "dataset.bag[", "nested"),
    (looped(), "dataset.late[0]", "a lambda"),
    (lambda: 0, "dataset", "a lambda"),
]


@each_row(("data", "path", "cause"), CULPRITS)
def test_the_culprit_is_named(data, path, cause):
    problem = pickle_problem(data)
    assert problem.startswith(path)
    assert cause in problem.partition(". Workers receive it")[0]
    assert "workers=0" in problem


def test_what_can_be_sent_is_no_problem():
    looping = Data(fine=1)
    looping.itself = looping
    for data in (
        looping,
        Careful(fn=lambda: 0, kept=1),
        Data(a=np.zeros(3), b=torch.zeros(3), c=torch.nn.Linear(2, 2), d=top_level, e=Pair(1, 2), f=Slots(3)),
        functools.partial(top_level, 1),
        Data(fn=Data(a=1).__init__),
        list(range(5000)),
    ):
        assert pickle_problem(data) is None


def test_tensors_are_not_moved_and_arrays_not_copied():
    data = Data(tensor=torch.zeros(1000), array=np.zeros(50_000_000, np.uint8))
    tracemalloc.start()
    try:
        assert pickle_problem(data) is None
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert not data.tensor.is_shared()


def test_a_tensor_inside_a_gradient_graph():
    data = Data(weights=[torch.zeros(2, requires_grad=True) * 2])
    assert pickle_problem(data).startswith("dataset.weights[0]")
    assert "detach()" in pickle_problem(data)
    assert pickle_problem(Data(weight=torch.zeros(2, requires_grad=True))) is None


def test_a_tensor_on_a_gpu():
    tensor = torch.Tensor._make_subclass(OnGpu, torch.zeros(2))
    problem = pickle_problem(Data(cache={"x": tensor}), "train set")
    assert problem.startswith("train set.cache['x'] is a tensor on cuda:0.")
    assert ".cpu()" in problem


def test_too_deep_for_pickle():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert "recursion" in pickle_problem(Data(deep=deep))


@pytest.mark.timeout(30)
def test_what_is_held_twice_is_looked_at_once():
    tangle = [lambda: 0]
    for _ in range(60):
        tangle = [tangle, tangle]
    assert pickle_problem(tangle).startswith("dataset" + "[0]" * 61)


# A module of its own: workers need not import torch for it.
SHARING = """
class Sharing:
    def use(self):
        with self.lock:
            self.value.value += self.pipe.recv()
        self.event.set()
"""


def test_what_multiprocessing_shares_can_be_sent_as_foreseen(tmp_path, monkeypatch):
    (tmp_path / "sharing.py").write_text(SHARING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))  # nor pytest
    data = importlib.import_module("sharing").Sharing()
    context = multiprocessing.get_context("spawn")
    data.pipe, send = context.Pipe(duplex=False)
    data.lock, data.value, data.event = context.Lock(), context.Value("i", 1), context.Event()
    assert pickle_problem(data) is None
    assert pickle_problem(Data(queue=context.Queue(), event=context.Event())) is None
    with pytest.raises(RuntimeError, match="through inheritance"):
        pickle.dumps(data.lock)  # nothing of the attempt stays behind
    process = context.Process(target=data.use)
    process.start()
    send.send(41)
    process.join()
    assert (process.exitcode, data.value.value, data.event.is_set()) == (0, 42, True)


def test_one_odd_element_of_a_long_list_is_seen():
    data = Data(items=[1] * 5000)
    data.items[4321] = lambda: 0
    assert pickle_problem(data).startswith("dataset.items[4321] ")


@pytest.fixture
def of_main(monkeypatch):
    """A class and a function of a main script."""
    main = types.ModuleType("__main__")
    exec("class Mine:\n    pass\n\ndef collate(batch):\n    return batch\n", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


def test_what_needs_main(of_main):
    for value in (of_main.Mine(), [1, {"x": of_main.collate}], [Data(), of_main.Mine], Data(a=(of_main.Mine(),))):
        assert needs_main_module(value)
    lookalikes = ["__main__", "Mine", Data, "/a/__main__/b.jpg", {"__mp_main__": top_level}, Data(x=1)]
    assert not needs_main_module(lookalikes)


@pytest.mark.parametrize("hip", ["5.2", None])
def test_fork_after_the_gpu_runtime_has_started(monkeypatch, hip):
    assert method_problem("fork") is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.version, "hip", hip)
    problem = method_problem("fork")
    assert method_problem("forkserver") is None
    assert ("HIP" if hip else "CUDA") in problem
    assert "spawn" in problem


def test_fork_without_torch_and_without_fork(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert method_problem("fork") is None
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert "cannot start workers by fork:" in method_problem("fork")
    assert "cannot start workers by forkserver:" in method_problem("forkserver")
    assert method_problem("spawn") is None


@pytest.fixture
def small_shm(monkeypatch):
    monkeypatch.setattr(preflight.resources, "shm_free", lambda root: 64 * 2**20)


def test_shared_memory_too_small(small_shm, monkeypatch):
    batch = 16 * 640 * 640 * 3
    problem = shm_problem(batch, 4, 4)
    for text in ("64 MB free", "4 workers with 4 batches of 18.8 MB", "319 MB", "--shm-size=1024m", "--ipc=host"):
        assert text in problem
    assert "workers=1 prefetch=2 fits" in problem
    assert shm_problem(batch, 1, 2) is None
    assert "workers=2 fits" in shm_problem(batch // 2, 4, 2)
    assert shm_problem(batch // 2, 2, 2) is None
    assert "workers=0 fits" in shm_problem(60 * 2**20, 1, 1)
    assert shm_problem(batch, 0, 4) is None
    assert shm_problem(0, 4, 4) is None
    monkeypatch.setattr(preflight.resources, "shm_free", lambda root: None)
    assert shm_problem(batch, 64, 64) is None


def test_everything_is_checked_before_workers_start(small_shm, of_main, monkeypatch):
    bad, check = {"dataset": Data(fn=lambda: 0)}, functools.partial(check_before_start, workers=2)
    assert not check(bad, method="fork")
    with pytest.raises(LoaderError, match=r"^dataset\.fn cannot be sent"):
        check(bad, method="forkserver")
    with pytest.raises(LoaderError, match="--shm-size"):
        check({}, method="fork", batch_bytes=2**26)
    # This main module has no file, as in a notebook.
    assert not check({"dataset": Data()}, method="spawn")
    need = r"notebook.*Workers need it for collate_fn\.a\[0\]: the function collate defined in <string>:4"
    with pytest.raises(LoaderError, match=need):
        check({"dataset": Data(), "collate_fn": Data(a=[of_main.collate])}, method="spawn")
    monkeypatch.setattr(preflight, "main_problem", lambda: None)
    assert check({"dataset": Data(), "collate_fn": of_main.collate}, method="spawn")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(LoaderError, match="cannot be forked"):
        check({}, method="fork")


def test_lists_that_are_shared_are_not_pickled():
    data = Data(labels=[lambda: 0])
    with pytest.raises(LoaderError, match=r"^dataset\.labels\[0\] cannot be sent"):
        check_before_start({"dataset": data}, method="spawn", workers=1)
    assert not check_before_start({"dataset": data}, method="spawn", workers=1, shared=[data.labels])
