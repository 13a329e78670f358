"""What is taken out of a text for strangers, and what is left in."""

from __future__ import annotations

from pathlib import Path

import pytest

from yolo_rocm.diagnosis import redaction
from yolo_rocm.diagnosis.redaction import is_secret, redact, without_paths

from ..tables import each_row

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    monkeypatch.setattr(redaction.getpass, "getuser", lambda: "root")
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "pc")
    monkeypatch.setattr(Path, "home", lambda: Path("/srv/me"))


SECRETS = {
    "postgres://me:p@ss:w@db.example:5432/x": "postgres://<secret>@db.example:5432/x",
    "https://h/x?token=abc&y=1": "https://h/x?token=<secret>&y=1",
    "https://h/x?key=abc": "https://h/x?key=<secret>",
    "HF_TOKEN=hunter2": "HF_TOKEN=<secret>",
    "Authorization: Bearer abc.def-ghi": "Authorization: Bearer <secret>",
    "jane.doe@example.org": "<mail>",
    '"api_key": "hunter2"': '"api_key": "<secret>"',
    "password: hunter2": "password: <secret>",
    "login --key hunter2 --epochs 3": "login --key <secret> --epochs 3",
    "--wandb-token=hunter2": "--wandb-token=<secret>",
    **dict.fromkeys(
        (
            "ghp_abcdefghijklmnop1234",
            "github_pat_11ABCDEFG0abcdefghijkl",
            "glpat-abcdefghij1234567890",
            "sk-proj-abcdefghijkl1234",
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAABCDEFGHIJKLMNOP",
            "hf_abcdefghijklmnopqrst",
            "pypi-AgEIcHlwaS5vcmcCJDU3",
            "xoxb-1234567890-abcdef",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
        ),
        "<secret>",
    ),
}


@each_row(("text", "left"), SECRETS.items(), ids=SECRETS.keys())
def test_secrets_are_known_by_their_looks(text, left):
    assert redact(f"MIOPEN_X: {text}\n", {}) == f"MIOPEN_X: {left}\n"


HARMLESS = (
    "https://github.com/ROCm/TheRock/issues/1719",
    "max_tokens=512 tokens: 4096 token: 12 use_token=false",
    "KeyError: 'weights' at key=value, keys: 3",
    "the basic convolution, the bearer of it",
    "torch 2.10.0+rocm7.0 at 0000:03:00.0, commit 0123456789abcdef0123456789abcdef01234567",
    "conv/vendor/fp16/nchw/3x3: error, miopenStatusUnknownError",
    "/srv/mess/x /srv/me.old/y",
    "clang --pass forward --compute-pass forward",
    "sk-learn-something-else-long pypi-attestations-something-x",
)


@each_row("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert redact(text, {}) == text


@each_row(
    ("name", "secret"),
    [
        *((name, True) for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SSHPASS")),
        *((name, True) for name in ("MYSQL_PWD", "REDISCLI_AUTH", "my_secrets", "GOOGLE_CREDENTIALS", "TOKEN2")),
        *((name, False) for name in ("PWD", "OLDPWD", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "KEYBOARD")),
        *((name, False) for name in ("SSH_AUTH_SOCK", "HSA_BYPASS", "GIT_AUTHOR_NAME", "MIOPEN_MONKEY")),
    ],
)
def test_names_of_secrets(name, secret):
    assert is_secret(name) is secret
    assert redact("it said hunter2!", {name: "hunter2"}) == ("it said <secret>!" if secret else "it said hunter2!")


def test_values_of_secrets():
    assert redact("aa bb-long bb-longer", {"A_TOKEN": "bb-long", "B_TOKEN": "bb-longer"}) == "aa <secret> <secret>"
    assert redact("first second, short", {"A_KEY": " second\n", "B_KEY": "short"}) == "first <secret>, short"


def test_homes_and_names():
    assert redact("root pc localhost io", {"USER": "io", "HOSTNAME": "localhost"}) == "root pc localhost io"
    assert redact("on gfx90a", {"USER": "gfx90a"}) == "on gfx90a"
    assert redact("/srv/me/x /srv/me", {}) == "~/x ~"
    homes = r"/home/heinrich/x /Users/other /media/me/disk C:\Users\Heinrich Z\x D:/Users/other/y"
    assert redact(homes, {}) == r"/home/<user>/x /Users/<user> /media/<user>/disk C:\Users\<user>\x D:/Users/<user>/y"
    environ = {"USER": "heinrich", "HOSTNAME": "workhorse.example.org"}
    written = "heinrich on workhorse and workhorse.example.org, heinrichs"
    assert redact(written, environ) == "<user> on <host> and <host>, heinrichs"


PATHS = {
    "cannot open /opt/venv/lib/python3.12/site-packages/torch/lib.so: no": "cannot open <path>: no",
    'File "/srv/me/my disk/train.py", line 3': 'File "<path>", line 3',
    "(~/runs/train) in ../data/images": "(<path>) in <path>",
    r"C:\data\runs\train gone": "<path> gone",
    "LD_LIBRARY_PATH=/opt/rocm/lib:/data/jane/lib": "LD_LIBRARY_PATH=<path>:<path>",
    "at file:///data/jane/x.py now": "at <path> now",
    "https://example.org:8080/a, /opt/b": "https://example.org:8080/a, <path>",
    "conv/vendor/fp32/nchw/1x1: ok, 3/4 of 1.2 s": "conv/vendor/fp32/nchw/1x1: ok, 3/4 of 1.2 s",
}


@each_row(("text", "left"), PATHS.items(), ids=str)
def test_paths_are_taken_out(text, left):
    assert without_paths(text) == left
