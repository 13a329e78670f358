"""`python -m yolo_rocm.diagnosis.probe_predict_child SETTINGS ANSWER`: one engine of prediction computes a convolution.

Every engine gets the same small one, and answers with its distance from the fp64 result.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from ..utils.child_process import answer_parent

_IN, _OUT, _SIZE = 3, 8, 16
# ncnn's own text: a 3x3 convolution, padding 1, no bias.
_NCNN_PARAM: Final = (
    "7767517\n2 2\nInput in0 0 1 in0\n"
    f"Convolution conv0 1 1 in0 out0 0={_OUT} 1=3 4=1 5=0 6={_OUT * _IN * 9}\n"
)  # fmt: skip
_RAW_FLOATS: Final = b"\0\0\0\0"  # before ncnn's weights: they are not packed


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Return the relative error of an engine.

    Args:
        given: `engine`, `device` and `fp16`.
    """
    import torch

    from ..engines.measure import relative_error

    draw = torch.Generator().manual_seed(0)
    x = torch.randn((1, _IN, _SIZE, _SIZE), generator=draw)
    weight = torch.randn((_OUT, _IN, 3, 3), generator=draw)
    exact = torch.nn.functional.conv2d(x.double(), weight.double(), padding=1)
    with tempfile.TemporaryDirectory() as folder:
        compute = {"ncnn": _ncnn, "onnx": _onnx, "openvino": _openvino}[given["engine"]]
        got = compute(x.numpy(), weight.numpy(), given["device"], given["fp16"], Path(folder))
    return {"error": relative_error(torch.from_numpy(got).reshape(exact.shape), exact)}


def _ncnn(x: Any, weight: Any, place: str, fp16: bool, folder: Path) -> Any:
    import ncnn
    import numpy as np

    from ..ultralytics_hooks.ncnn_precision import set_precision

    (folder / "m.param").write_text(_NCNN_PARAM)
    (folder / "m.bin").write_bytes(_RAW_FLOATS + weight.tobytes())
    net = ncnn.Net()
    set_precision(net, fp16)
    kind, _, index = place.partition(":")
    net.opt.use_vulkan_compute = kind == "vulkan"
    if kind == "vulkan":
        net.set_vulkan_device(int(index))
    if net.load_param(str(folder / "m.param")) or net.load_model(str(folder / "m.bin")):
        raise RuntimeError("ncnn could not load the model")
    with net.create_extractor() as extractor:
        extractor.input("in0", ncnn.Mat(x[0]))
        status, out = extractor.extract("out0")
        if status:
            raise RuntimeError(f"ncnn ended with status {status}")
        return np.array(out)


def _onnx_file(weight: Any, folder: Path) -> str:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _IN, _SIZE, _SIZE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _OUT, _SIZE, _SIZE])
    graph = helper.make_graph([node], "probe", [x], [y], [numpy_helper.from_array(weight, "w")])
    file = str(folder / "m.onnx")
    # An opset and a file format that every runtime since 2022 reads.
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    return file


def _onnx(x: Any, weight: Any, place: str, fp16: bool, folder: Path) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(_onnx_file(weight, folder), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def _openvino(x: Any, weight: Any, place: str, fp16: bool, folder: Path) -> Any:
    import openvino

    core = openvino.Core()
    precision = {"INFERENCE_PRECISION_HINT": "f32"}  # on ARM it computes in fp16 unless told otherwise
    return core.compile_model(core.read_model(_onnx_file(weight, folder)), "CPU", precision)([x])[0]


if __name__ == "__main__":
    answer_parent(main)
