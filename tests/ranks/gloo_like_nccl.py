"""What stands in for NCCL where ranks are tested on CPUs: Gloo, made to do what trainers of GPUs ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def install() -> None:
    """Let Gloo do what trainers written for NCCL ask for: averages, truth values, barriers and numbers of a device.

    Its own threads know nothing of inference mode, in which validation runs, and older ones refuse its tensors.
    """
    import torch
    from torch import distributed

    def is_gloo(group: Any) -> bool:
        return bool(distributed.is_initialized() and distributed.get_backend(group) == "gloo")

    def reduce(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, dst: int, op: Any = distributed.ReduceOp.SUM, group: Any = None, **more: Any) -> Any:
            if not is_gloo(group):
                return original(tensor, dst, op, group, **more)
            averages = op == distributed.ReduceOp.AVG
            with torch.inference_mode(False):
                plain = tensor.clone()
                result = original(plain, dst, distributed.ReduceOp.SUM if averages else op, group, **more)
            if distributed.get_rank() == dst:
                tensor.copy_(plain / distributed.get_world_size(group) if averages else plain)
            return result

        return call

    def gather_object(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            with torch.inference_mode(False):
                return original(*args, **more)

        return call

    def broadcast(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Any, src: int, group: Any = None, **more: Any) -> Any:
            if str(tensor.dtype) != "torch.bool" or not is_gloo(group):
                return original(tensor, src, group, **more)
            number = tensor.int()
            result = original(number, src, group, **more)
            tensor.copy_(number.bool())
            return result

        return call

    def barrier(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
            return original(group, async_op, None if is_gloo(group) else device_ids)

        return call

    for wrap in (reduce, gather_object, broadcast, barrier):
        setattr(distributed, wrap.__name__, wrap(getattr(distributed, wrap.__name__)))
    # The final evaluation asks CUDA which device it is on, whatever the training ran on.
    torch.cuda.current_device = lambda: 0
