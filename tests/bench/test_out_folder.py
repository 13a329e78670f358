"""`out=` of benchmarks is looked at before anything is measured."""

from __future__ import annotations

import pytest

from yolo_rocm.bench import checks
from yolo_rocm.errors import ConfigError


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    assert checks.folder(tmp_path / "new") == tmp_path / "new"
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(checks, "problem_with", lambda folder: OSError(30, "Read-only file system"))
    with pytest.raises(ConfigError, match=r"nothing can be written in out='.*new': Read-only file system"):
        checks.folder(tmp_path / "new")
