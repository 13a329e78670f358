"""All caches of a process in one place."""

from __future__ import annotations

from yolo_rocm.engines.device_state import DeviceState


def test_a_state_is_set_aside_and_brought_back():
    state, asked = DeviceState(), []
    names, seen = state.container({"cuda:0": "W6800"}), state.container({1})

    @state.cached(maxsize=4)
    def family(device):
        asked.append(device)
        return "fma"

    family("cuda:0")
    with state.replaced():
        assert (names, seen) == ({}, set())
        names["cuda:1"] = "another machine's"
        family("cuda:0")
    assert (names, seen) == ({"cuda:0": "W6800"}, {1})
    family("cuda:0")
    family("cuda:0")
    assert asked == ["cuda:0"] * 3  # on each machine once, and once after it
    state.clear()
    assert (names, seen) == ({}, set())
