"""Settings that name engines: what is told about one that cannot be used."""

from __future__ import annotations

import json

import pytest

from yolo_rocm.engines.names import SINGLE, Pass, single_engines
from yolo_rocm.errors import ConfigError

pytestmark = pytest.mark.once


def test_auto_is_all_of_them_and_stands_alone():
    assert single_engines("auto") == list(SINGLE)
    for setting in ("auto+gemm", "gemm+auto", "auto+auto"):
        with pytest.raises(ConfigError, match="'auto' cannot be joined with others"):
            single_engines(setting)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("aut", r"unknown engine 'aut'; did you mean 'auto'\? Allowed: auto"),
        ("gemm+aut", r"unknown engine 'aut'\. Allowed: auto"),  # what is proposed can be used there
        ("gemm+trition", r"unknown engine 'trition'; did you mean 'triton'\?"),
    ],
)
def test_one_that_does_not_exist_is_named(setting, words):
    with pytest.raises(ConfigError, match=words):
        single_engines(setting)


def test_a_pass_is_its_word_on_every_python():
    """In messages, in formats and in files, which older runs have written with plain words."""
    assert f"{Pass.GRAD_INPUT} {Pass.FORWARD:>8}" == "grad_input  forward"
    assert json.dumps({Pass.BACKWARD: Pass.GRAD_WEIGHT}, indent=0) == '{\n"backward": "grad_weight"\n}'
    assert {Pass.FORWARD: 1}["forward"] == 1
