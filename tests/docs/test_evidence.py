"""Evidence on generated pages: what cards have sent gets there, as text and unedited."""

from __future__ import annotations

import pytest

from yolo_rocm.errors import EvidenceError
from yolo_rocm.preset.evidence import seal

from ..certificates import certificate, write

pytestmark = pytest.mark.once
EXECUTED = (
    "target,kernel,dtype,error,instructions,relative_error\n"
    "gfx1010,forward,fp32,,5,1e-7\ngfx1030,forward,fp32,,5,1e-7\ngfx1151,forward,fp32,,5,1e-7\n"
)


@pytest.fixture
def sent(generate, tmp_path, monkeypatch):
    """Return a function that makes certificates the only evidence there is; generators see them too."""
    from yolo_rocm.preset import evidence

    monkeypatch.setattr(evidence, "config_root", lambda: tmp_path)
    (tmp_path / "compiled.csv").write_text(EXECUTED, encoding="utf-8")

    def send(**certificates):
        for name, data in certificates.items():
            write(tmp_path / "evidence", f"{name}.json", data)

    return send


def last_cells(table: str) -> dict[str, str]:
    """Return the last cell of each row by its first."""
    rows = (line.strip("| ").split(" | ") for line in table.splitlines()[2:])
    return {row[0]: row[-1] for row in rows}


def test_evidence_gets_into_the_table_of_cards_and_the_page_of_what_was_run(sent, tmp_path):
    from making.evidence import certificates
    from making.presets import cards

    h200 = certificate("nvidia", "NVIDIA H200", None, 140.0, preset="generic")
    strix = certificate(name="Radeon 8060S", gfx="gfx1151", failed=("kernels",), preset="strixhalo", date="2026-12-01")
    sent(h200=h200, strix=strix, quick=certificate(quick=True))
    told = {row: cell for row, cell in last_cells(cards(tmp_path)).items() if cell != "no"}
    assert told == {  # not RDNA3, not Any AMD GPU
        "RDNA3.5: inside Ryzen AI processors": "[Radeon 8060S failed (1 file)](docs/tested.md#certified-cards)",
        "Any NVIDIA GPU": "[NVIDIA H200, with our engines, passed (1 file)](docs/tested.md#certified-cards)",
    }
    lines = certificates().splitlines()[2:]
    assert [line.split(" | ")[2] for line in lines] == ["2026-12-01", "2026-11-16", "2026-11-16"]
    assert "[Radeon 8060S](../configs/evidence/strix.json) | `gfx1151` | 2026-12-01" in lines[0]
    assert "a quick run, which proves nothing" in lines[2]


def test_only_right_kernels_of_triton_have_run_on_a_card(sent, tmp_path):
    from making.compiled import rungs

    sent(
        a=certificate(presents_as="gfx1030"),
        b=certificate(triton=False),
        c=certificate(name="Radeon 8060S", gfx="gfx1151", failed=("kernels",), preset="strixhalo"),
    )
    assert last_cells(rungs(tmp_path)) == {
        "`gfx1010`": "no",
        "`gfx1030`": "Radeon RX 5600 XT as gfx1030",
        "`gfx1151`": "no",
    }


def test_text_of_strangers_is_no_markup(sent, tmp_path):
    from making.compiled import rungs
    from making.evidence import certificates
    from making.presets import cards, families

    said = "x](https://evil.example) <img src=x> ![y](z) `` \\|"
    shown = "x\\](https://evil.example) \\<img src=x\\> !\\[y\\](z) \\`\\` \\\\\\|"
    nvidia = certificate("nvidia", said, None, 8.0)
    parts = {name: {**part, "summary": said} for name, part in nvidia["parts"].items()}
    stack = {key: said if isinstance(value, str) else value for key, value in nvidia["stack"].items()}
    sent(amd=certificate(name=said), nvidia=seal({**nvidia, "parts": parts, "stack": stack}))
    for made in (cards(tmp_path), certificates(), rungs(tmp_path), families()):
        assert shown in made
        assert said.replace("|", "\\|") not in made
        assert "<img" not in made.replace("\\<img", "")
        assert "](https" not in made.replace("\\](https", "")


def test_no_page_is_made_from_an_edited_file(sent, tmp_path):
    from making.evidence import certificates
    from making.presets import cards

    sent(mine={**certificate(), "date": "2027-01-01"})
    for maker in (certificates, lambda: cards(tmp_path)):
        with pytest.raises(EvidenceError, match=r"mine\.json was edited"):
            maker()
