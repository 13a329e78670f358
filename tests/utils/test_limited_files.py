"""Files that anybody may have written: bombs, towers and nonsense end in one line, and before memory is filled."""

from __future__ import annotations

import logging

import pytest

import yolo_rocm
from yolo_rocm.engines.plan_store import PlanStore
from yolo_rocm.errors import ConfigError, PresetError
from yolo_rocm.preset.cfg_file import parse, read
from yolo_rocm.report.files import Reader
from yolo_rocm.utils.limited_files import UnreadableError, parse_yaml, read_yaml

from ..tables import each_row

pytestmark = pytest.mark.once

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
HOSTILE = {
    "alias bomb": (BOMB, "*a0 repeats another value: write it out"),
    "merge key": ("a: &a {k: v}\nb: {<<: *a}\n", "*a repeats another value"),
    "brackets": ("a: " + "[" * 200_000 + "\n", "nested deeper than 32"),
    "many keys": ("".join(f"key{n}: 1\n" for n in range(1_000_000)), "KiB"),
    "long number": ("a: " + "1" * 400_000 + "\n", "a value of more than 20,000 characters"),
    "no day": ("a: 2024-13-45\n", "not YAML: month must be in 1..12"),
    "code": ("a: !!python/object/apply:os.system [true]\n", "could not determine a constructor"),
    "no boolean": ("a: !!bool foo\n", "not YAML: 'foo'"),
    "unhashable key": ("? {a: 1}\n: 2\n", "unhashable key"),
    "two documents": ("a: 1\n---\nb: 1\n", "expected a single document"),
    "syntax": ("a: 1\nb: [\n", "line 3, column 1"),
}


@each_row(("text", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_one_clear_error_wherever_it_lies(tmp_path, text, words):
    path = tmp_path / "cfg.yaml"
    path.write_text(text)
    for error, reading in (
        (UnreadableError, lambda: parse_yaml(text)),
        (ConfigError, lambda: parse([str(path)])),
        (PresetError, lambda: yolo_rocm.load_preset(path)),
    ):
        with pytest.raises(error) as raised:
            reading()
        assert words in str(raised.value)
        assert len(str(raised.value).splitlines()) == 1
        if error is not UnreadableError:
            assert str(path) in str(raised.value)
    (tmp_path / "args.yaml").write_text(text)
    reader = Reader(tmp_path)
    assert reader.mapping("args.yaml", "no arguments", read_yaml) == {}
    assert words in reader.remarks[0]


def test_what_people_write_is_read(tmp_path):
    found = parse_yaml("name: \u00df\nno: ~\nlist: [1, [2, [3]]]\n")
    assert (found["name"], found[False], found["list"]) == ("\u00df", None, [1, [2, [3]]])
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfepochs: 3\r\nname: x\r\n")  # as Windows' editor saves it
    assert read(tmp_path / "bom.yaml") == {"epochs": 3, "name": "x"}
    deep = "[" * 32 + "]" * 32
    assert parse_yaml(f"{deep}\n") is not None
    with pytest.raises(UnreadableError, match="nested deeper than 32"):
        parse_yaml(f"[{deep}]\n")
    many = "\n".join(f"k{n}: {n}" for n in range(9_000))
    assert len(parse_yaml(many)) == 9_000
    assert len(parse_yaml("a: " + "x" * 19_000)["a"]) == 19_000
    assert parse_yaml("") is None
    (tmp_path / "bad.yaml").write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read(tmp_path / "bad.yaml")
    tower = "[" * 100_000  # of the command line stays text
    assert parse([f"source={tower}"]) == {"source": tower}


BAD_JSON = {
    "tower inside": ('{"entries": ' + '{"a": ' * 100_000, "nested too deep"),
    "large": (" " * (17 * 2**20), "larger than 16384 KiB"),
    "long number": ('{"entries": ' + "1" * 5000 + "}", "."),
    "bytes": ("\xff", "not UTF-8"),
    "list": ("[]", "."),
}


@each_row(("text", "words"), BAD_JSON.values(), ids=BAD_JSON)
def test_hostile_json_of_ours_costs_one_line_and_is_written_anew(tmp_path, text, words, caplog):
    data = text.encode("latin-1")
    store = PlanStore("cpu", tmp_path)
    store.path.write_bytes(data)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "yolo_rocm"):
        store = PlanStore("cpu", tmp_path)
        assert store.entries == {}
        store.add({"problem": {"forward": "columns"}})
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "measured again" in record.getMessage()
    assert PlanStore("cpu", tmp_path).entries == {"problem": {"forward": "columns"}}
