"""What a preset may set in the environment: switches of the GPU stack, and nothing that loads or runs code."""

from __future__ import annotations

import pytest

import yolo_rocm
from yolo_rocm.errors import PresetError
from yolo_rocm.preset.resolve import resolve
from yolo_rocm.preset.select import PRESET_VARIABLE
from yolo_rocm.session.session import Session

from ..fake_trees import write

pytestmark = pytest.mark.once

LOADS_CODE = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "PATH", "Path", "HOME"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "BASH_ENV", "IFS", "SHELL", "EDITOR", "TMPDIR", "BROWSER", "CC"),
    *("HSA_TOOLS_LIB", "HSA_MODEL_LIB", "HSA_COREDUMP_PATTERN", "ROCP_TOOL_LIB", "ROCM_PATH", "hsa_tools_lib"),
    *("HIP_PATH", "HIP_CLANG_PATH", "HIP_COMPILER", "HIPCC_COMPILE_FLAGS_APPEND", "HIPRTC_COMPILE_OPTIONS_APPEND"),
    *("AMD_OCL_BUILD_OPTIONS_APPEND", "AMD_OCL_SUBST_OBJFILE", "AMD_COMGR_SAVE_TEMPS", "AMD_LOG_LEVEL_FILE"),
    *("MIOPEN_SYSTEM_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "ROCBLAS_TENSILE_LIBPATH", "HIPBLASLT_TENSILE_LIBPATH"),
    *("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_TOPO_DUMP_FILE", "OMP_TOOL_LIBRARIES", "OMP_TOOL"),
    *("TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_LOGS", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_NVCC_FLAGS"),
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH", "PYTORCH_KERNEL_CACHE_PATH", "MALLOC_TRACE"),
    *("PYTORCH_TUNABLEOP_FILENAME", "YOLO_ROCM", "YOLO_ROCM_CHILD", "YOLO_ROCM_CONFIG", "YOLO_CONFIG_DIR"),
)
NO_NAMES = ("HSA_X=1", "HSA X", "HSA_\u00c4", "1HSA")
SWITCHES = (
    *("HSA_OVERRIDE_GFX_VERSION", "HSA_ENABLE_SDMA", "HSA_XNACK", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("HIP_LAUNCH_BLOCKING", "AMD_DIRECT_DISPATCH", "AMD_SERIALIZE_KERNEL", "AMD_LOG_LEVEL", "GPU_MAX_HW_QUEUES"),
    *("MIOPEN_FIND_MODE", "MIOPEN_DEBUG_CONV_DIRECT", "MIOPEN_LOG_LEVEL", "MIOPEN_COMPILE_PARALLEL_LEVEL"),
    *("PYTORCH_HIP_ALLOC_CONF", "PYTORCH_TUNABLEOP_ENABLED", "TORCH_BLAS_PREFER_HIPBLASLT", "ROCBLAS_USE_HIPBLASLT"),
    *("NCCL_PROTO", "NCCL_P2P_DIRECT_DISABLE", "NCCL_DEBUG", "RCCL_MSCCL_ENABLE", "OMP_NUM_THREADS", "KMP_BLOCKTIME"),
    *("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX", "YOLO_OFFLINE", "CUDA_VISIBLE_DEVICES"),
    *("TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "CUBLAS_WORKSPACE_CONFIG", "NCCL_PROFILE_INTERVAL"),
)


def test_switches_are_allowed_and_what_loads_code_is_refused_by_name():
    allowed = resolve({"base": "cpu", "env": {name: {"value": "1"} for name in SWITCHES}}).preset.env
    assert [allowed[name].value for name in SWITCHES] == ["1"] * len(SWITCHES)
    with pytest.raises(PresetError) as error:
        resolve({"base": "cpu", "env": {name: {"value": "x"} for name in (*LOADS_CODE, *NO_NAMES)}})
    lines = str(error.value).splitlines()
    assert len(lines) == len(LOADS_CODE) + len(NO_NAMES)
    for name, line in zip((*LOADS_CODE, *NO_NAMES), lines, strict=True):
        assert ("is not the name of" if name in NO_NAMES else f"a preset may not set {name}") in line
    assert "Allowed: HSA_*, " in lines[0]


def test_every_way_in_is_closed(tmp_path, monkeypatch):
    """A file, a dictionary, what lies over a preset, the user's own folder, and what `auto` stands for."""
    evil = {"env": {"LD_PRELOAD": {"value": "evil.so"}, "HSA_TOOLS_LIB": {"value": "evil.so"}}}
    text = "base: cpu\nenv: {LD_PRELOAD: {value: evil.so}, HSA_TOOLS_LIB: {value: evil.so}}\n"
    path = write(tmp_path / "presets/evil.yaml", text)
    standing_on_it = write(tmp_path / "innocent.yaml", f"base: {path}\n")
    monkeypatch.setenv("YOLO_ROCM_CONFIG", str(tmp_path))
    ways = [
        lambda: yolo_rocm.load_preset(path),
        lambda: yolo_rocm.load_preset(standing_on_it),
        lambda: yolo_rocm.load_preset("evil"),
        lambda: yolo_rocm.load_preset(evil),
        lambda: Session("cpu", evil),
        lambda: yolo_rocm.train("yolov8n.yaml", data="coco8.yaml", preset="cpu", rocm=evil),
        lambda: yolo_rocm.load_preset("auto"),
    ]
    monkeypatch.setenv(PRESET_VARIABLE, str(path))
    for way in ways:
        with pytest.raises(PresetError, match="may not set LD_PRELOAD") as error:
            way()
        assert "may not set HSA_TOOLS_LIB" in str(error.value)  # all of them at once


def test_a_preset_says_how_and_not_what():
    for name in ("model", "data", "pretrained", "cfg", "resume", "source", "trainer"):
        with pytest.raises(PresetError, match=f"{name} belongs to the run"):
            resolve({"base": "cpu", "train": {name: "evil.pt"}})
    assert resolve({"base": "cpu", "train": {"pretrained": False, "batch": 2}}).preset.train["pretrained"] is False
