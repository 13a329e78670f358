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
    "redis://:pw@h": "redis://<secret>@h",
    "postgres://me:p@ss:w@db.example:5432/x": "postgres://<secret>@db.example:5432/x",
    "https://me@example.org/simple": "https://<secret>@example.org/simple",
    "git+ssh://git:pw@h/x.git": "git+ssh://<secret>@h/x.git",
    "https://h/x?token=abc&y=1": "https://h/x?token=<secret>&y=1",
    "https://h/x?a=1&X-Amz-Signature=0a1b": "https://h/x?a=1&X-Amz-Signature=<secret>",
    "https://h/x?key=abc": "https://h/x?key=<secret>",
    "Authorization: Bearer abc.def-ghi": "Authorization: <secret>",
    "'authorization': 'Basic dXNlcjpwdw=='": "'authorization': '<secret>'",
    "sent bearer 0123456789": "sent bearer <secret>",
    "HF_TOKEN=hunter2": "HF_TOKEN=<secret>",
    '"api_key": "hunter2"': '"api_key": "<secret>"',
    "password: hunter2": "password: <secret>",
    "login --key hunter2 --epochs 3": "login --key <secret> --epochs 3",
    "--wandb-token=hunter2": "--wandb-token=<secret>",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- x": "<secret> x",
    "-----BEGIN PRIVATE KEY-----\nMIIE\ncut off": "<secret>",
    **dict.fromkeys(
        (
            "ghp_abcdefghijklmnop1234",
            "github_pat_11ABCDEFG0abcdefghijkl",
            "glpat-abcdefghij1234567890",
            "sk_live_abcdefghijkl1234",
            "rk_test_abcdefghijkl1234",
            "sk-proj-abcdefghijkl1234",
            "AIzaSyA1234567890abcdefghijklmnopqrstu",
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAABCDEFGHIJKLMNOP",
            "ASIAABCDEFGHIJKLMNOP",
            "hf_abcdefghijklmnopqrst",
            "pypi-AgEIcHlwaS5vcmcCJDU3",
            "dckr_pat_abcdefghijklmnopqrst",
            "xoxb-1234567890-abcdef",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
        ),
        "<secret>",
    ),
}


@each_row(("text", "left"), SECRETS.items(), ids=SECRETS.keys())
def test_secrets_are_known_by_their_looks(text, left):
    assert redact(text, {}) == left
    assert redact(f"MIOPEN_X: {text}\n", {}) == f"MIOPEN_X: {left}\n" or text.startswith("-----")


HARMLESS = (
    "https://github.com/ROCm/TheRock/issues/1719",
    "npm_config_cache=/tmp/x skip_tests risk-free-of-any-thing-known",
    "max_tokens=512 tokens: 4096 token: 12 use_token=false",
    "KeyError: 'weights' at key=value, keys: 3",
    "the basic convolution, the bearer of it",
    "torch 2.10.0+rocm7.0 at 0000:03:00.0, commit 0123456789abcdef0123456789abcdef01234567",
    "RuntimeError: HIP error: invalid device function",
    "conv/vendor/fp16/nchw/3x3: error, miopenStatusUnknownError",
    "/srv/mess/x /srv/me.old/y",
    "https://x.example/?keyword=gpu&design=3#keyframes=12",
    "clang --pass forward --compute-pass forward",
    "sk-learn-something-else-long pypi-attestations-something-x",
)


@each_row("text", HARMLESS)
def test_what_is_no_secret_stays(text):
    assert redact(text, {}) == text


@each_row(
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "SSHPASS", "DB_PW"),
        *("MYSQL_PWD", "REDISCLI_AUTH", "my_secrets", "OPENAI_APIKEY", "GOOGLE_CREDENTIALS", "YOLO_AUTH", "TOKEN2"),
    ],
)
def test_names_of_secrets(name):
    assert is_secret(name)
    assert redact("it said hunter2!", {name: "hunter2"}) == "it said <secret>!"


@each_row(
    "name",
    [
        *("PWD", "OLDPWD", "GDMSESSION", "DESKTOP_SESSION", "XDG_SESSION_TYPE", "SESSION_MANAGER", "XAUTHORITY"),
        *("TOKENIZERS_PARALLELISM", "KEYBOARD", "SSH_AUTH_SOCK", "HSA_BYPASS", "GIT_AUTHOR_NAME", "MIOPEN_MONKEY"),
    ],
)
def test_names_of_ordinary_variables(name):
    assert not is_secret(name)
    assert redact("python 3.11", {name: "python"}) == "python 3.11"


def test_values_of_secrets_that_are_part_of_words_or_ordinary_settings():
    assert redact("pythonic python", {"A_TOKEN": "python"}) == "pythonic <secret>"
    assert redact("xlongersecret12x", {"A_TOKEN": "longersecret12"}) == "x<secret>x"
    assert redact("aa bb-longer bb", {"A_TOKEN": "bb", "B_TOKEN": "bb-longer"}) == "aa <secret> bb"
    assert redact("disabled 2.10.0 short", {"A_KEY": "disabled", "B_KEY": "2.10.0", "C_KEY": "short"}) == (
        "disabled 2.10.0 short"
    )
    assert redact("first second", {"A_KEY": " second\n"}) == "first <secret>"


def test_homes_and_names():
    assert redact("/srv/me/x /srv/me", {}) == "~/x ~"
    told = "/home/heinrich/x /Users/other /media/me/disk"
    assert redact(told, {}) == "/home/<user>/x /Users/<user> /media/<user>/disk"
    windows = r"C:\Users\Heinrich Z\x D:/Users/other/y 'C:\\Users\\me'"
    assert redact(windows, {}) == r"C:\Users\<user>\x D:/Users/<user>/y 'C:\\Users\\<user>'"
    environ = {"USER": "heinrich", "HOSTNAME": "workhorse.example.org"}
    told = "heinrich on workhorse and workhorse.example.org, heinrichs me@example.org"
    assert redact(told, environ) == "<user> on <host> and <host>, heinrichs <mail>"


def test_short_or_common_names_are_no_names():
    assert redact("root pc localhost io", {"USER": "io", "HOSTNAME": "localhost"}) == "root pc localhost io"


@each_row("name", ["linux", "Windows", "container", "radeon", "gfx1031", "gfx90a", "rx6700xt", "mi300x"])
def test_a_name_that_is_a_system_or_a_card_stays(name):
    said = "linux Windows container radeon gfx1031 gfx90a rx6700xt mi300x"
    assert redact(said, {"USER": name, "HOSTNAME": name}) == said
    assert redact(f"{name}s {name}-pc", {"USER": f"{name}s", "HOSTNAME": f"{name}-pc"}) == "<user> <host>"


def test_the_id_of_one_card_is_taken_out():
    said = "ROCR_VISIBLE_DEVICES=GPU-1a2b3c4d5e6f7788,GPU-1 MIG-01234567-89ab-cdef GPU-bound GPU-deadbeefs"
    assert redact(said, {}) == "ROCR_VISIBLE_DEVICES=GPU-<id>,GPU-1 MIG-<id> GPU-bound GPU-deadbeefs"


PATHS = {
    "cannot open /opt/venv/lib/python3.12/site-packages/torch/lib.so: no": "cannot open <path>: no",
    'File "/srv/me/train.py", line 3': 'File "<path>", line 3',
    "(~/runs/train)": "(<path>)",
    "in ../data/images": "in <path>",
    r"C:\Users\<user>\runs\train gone": "<path> gone",
    r"on \\\\server\share\x": "on <path>",
    "D:/data/x.jpg": "<path>",
    "/tmp": "<path>",
    "OSError: /mnt/my disk/jane/x.so: cannot open": "OSError: <path>: cannot open",
    r"OSError: D:\Jane Doe\models\x.dll": "OSError: <path>",
    r"in D:\Jane Doe\ now": "in <path> now",
    "/data/jane doe.pt: gone": "<path>: gone",
    "'/mnt/my disk/jane doe' is no file": "'<path>' is no file",
    r"'D:\Jane Doe\my runs' is no file": "'<path>' is no file",
    "LD_LIBRARY_PATH=/opt/rocm/lib:/data/jane/lib": "LD_LIBRARY_PATH=<path>:<path>",
    "/opt/rocm/lib /data/jane": "<path> <path>",
    "at file:///data/jane/x.py now": "at <path> now",
    "hip:/data/jane/hip.cpp:120": "hip:<path>:120",
    "<frozen>/data/jane": "<frozen><path>",
    "//server/share/jane": "<path>",
    "cc -I/data/jane/include -o x": "cc -I<path> -o x",
    "/opt/x.so of gemm/fp32 failed": "<path> of gemm/fp32 failed",
    "https://example.org:8080/a, /opt/b": "https://example.org:8080/a, <path>",
    "see https://example.org/a/b and ROCm/TheRock#12": "see https://example.org/a/b and ROCm/TheRock#12",
    "conv/vendor/fp32/nchw/1x1: ok, 3/4 of 1.2 s": "conv/vendor/fp32/nchw/1x1: ok, 3/4 of 1.2 s",
    "relative a / b stays": "relative a / b stays",
}


@each_row(("text", "left"), PATHS.items(), ids=str)
def test_paths_are_taken_out(text, left):
    assert without_paths(text) == left
