"""Ultralytics' test of mixed precision, where its weights are not here."""

from __future__ import annotations

import logging
import socket

import pytest
import torch

from yolo_rocm.ultralytics_hooks import amp_check

pytestmark = pytest.mark.once


@pytest.fixture
def log(caplog):
    logger = logging.getLogger("ultralytics")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


class OnGpu(torch.nn.Module):
    """A model that says it is on a device which is neither CPU nor MPS."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, device="meta"))


def stand_in_check(model) -> bool:
    """Test mixed precision with yolo99x.pt as Ultralytics does with its own."""
    return False


@pytest.mark.parametrize(("here", "online"), [(True, False), (False, False), (False, True)])
def test_the_test_of_mixed_precision_opens_no_connection(here, online, tmp_path, monkeypatch, log):
    """Where Ultralytics has found a network it may download its weights, as without this package."""
    opened = []

    def refuse(self, address):
        opened.append(address)
        raise TimeoutError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ultralytics.utils.ONLINE", online)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: refuse(None, args))
    if here:
        (tmp_path / "yolo99x.pt").touch()
    skipped = not here and not online
    assert amp_check._patient(stand_in_check)(OnGpu()) is skipped
    assert bool([text for text in log.messages if "yolo99x.pt" in text]) is skipped
    assert opened == []


def test_a_cpu_has_no_test_of_mixed_precision_to_skip(log):
    assert amp_check._patient(stand_in_check)(torch.nn.Linear(1, 1)) is False
    assert "yolo99x.pt" not in log.text


def test_the_installed_test_of_mixed_precision_names_its_weights():
    from ultralytics.utils.checks import check_amp

    assert (amp_check._weights_of(check_amp) or "").endswith("n.pt")
