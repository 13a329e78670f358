"""Settings that name engines: what is told about one that cannot be used."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.engines.names import SINGLE, Pass, single_engines
from yolo_rocm.errors import ConfigError

pytestmark = pytest.mark.once


def test_auto_is_all_of_them():
    assert single_engines("auto") == list(SINGLE)


@pytest.mark.parametrize("setting", ["auto+gemm", "gemm+auto", "auto+auto"])
def test_auto_stands_alone(setting):
    with pytest.raises(ConfigError, match="'auto' cannot be joined with others") as caught:
        single_engines(setting)
    assert "unknown" not in str(caught.value)


def test_what_is_proposed_can_be_used_there():
    with pytest.raises(ConfigError, match=r"unknown engine 'aut'; did you mean 'auto'\? Allowed: auto"):
        single_engines("aut")
    with pytest.raises(ConfigError, match=r"unknown engine 'aut'\. Allowed: auto"):
        single_engines("gemm+aut")
    with pytest.raises(ConfigError, match=r"unknown engine 'trition'; did you mean 'triton'\?"):
        single_engines("gemm+trition")


def test_a_pass_is_its_word_on_every_python():
    """In messages, in formats and in files, which older runs have written with plain words."""
    assert f"{Pass.GRAD_INPUT} {Pass.FORWARD:>8}" == "grad_input  forward"
    assert json.dumps({Pass.BACKWARD: Pass.GRAD_WEIGHT}, indent=0) == '{\n"backward": "grad_weight"\n}'
    assert {Pass.FORWARD: 1}["forward"] == 1
