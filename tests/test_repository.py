"""What the files around the package say about each other: tools and versions, commands, and the bounds on Python."""

from __future__ import annotations

import re
import sys

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from .pages import PROJECT

pytestmark = pytest.mark.once
tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
TEST_EXTRA = [Requirement(text) for text in METADATA["project"]["optional-dependencies"]["test"]]


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


def pinned(name: str) -> str:
    """Return the one version of a tool that the test extra takes."""
    (requirement,) = [each for each in TEST_EXTRA if each.name == name]
    (specifier,) = requirement.specifier
    assert specifier.operator == "=="
    return specifier.version


def test_a_commit_is_checked_with_the_tools_of_the_tests():
    """Ruff comes in the version of the extra; mypy is the one that is installed, which the extra pins."""
    hooks = {
        hook["id"]: (repo, hook)
        for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
        for hook in repo["hooks"]
    }
    assert set(hooks) == {"ruff-check", "ruff-format", "mypy"}
    assert hooks["ruff-check"][0]["rev"] == hooks["ruff-format"][0]["rev"] == f"v{pinned('ruff')}"
    assert pinned("mypy")
    assert hooks["mypy"][1]["entry"] == ".venv-test/bin/python -m mypy"
    ci = read(".ci/run")
    for tool in ("ruff check .", "ruff format --check .", "mypy"):
        assert f".venv-test/bin/python -m {tool}\n" in ci


def test_the_guide_has_the_test_command_of_the_readme():
    (command,) = re.findall(r"^python3 -m venv \.venv-test .*$", read("README.md"), re.MULTILINE)
    assert f"```bash\n{command}\n```" in read("CONTRIBUTING.md")


def test_ci_types_the_first_command_of_the_readme():
    """On the install page, which CI follows; there it has a mark."""
    (command,) = re.findall(r"^python3 -m venv \.venv-setup .*$", read("README.md"), re.MULTILINE)
    assert f"<!-- commands: setup -->\n```bash\n{command}\n```" in read("docs/install.md")
    assert "docs/install.md:setup" in read(".ci/run")


def test_the_workflow_runs_what_developers_run():
    (job,) = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    (job,) = yaml.safe_load(read(".github/workflows/deep.yml"))["jobs"].values()
    deep, vulkan = [step["run"] for step in job["steps"] if "run" in step]
    assert vulkan.startswith(".ci/vulkan ")
    (pattern,) = re.findall(r"grep -E '(.*)' README.md\) -m deep", deep)
    assert len(re.findall(rf"{pattern}.* -m pytest .*$", read("README.md"), re.MULTILINE)) == 1


def test_every_place_names_the_same_pythons():
    allowed = SpecifierSet(METADATA["project"]["requires-python"])
    named = [line.rpartition(" ")[2] for line in METADATA["project"]["classifiers"] if "Python ::" in line]
    assert named
    assert all(version in allowed for version in named)
    first, last = named[0], named[-1]
    for place in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/install.md"):
        assert f"Python {first} to {last}" in " ".join(read(place).split()), place
    assert [f"3.{minor}" in allowed for minor in (9, 10, 14, 15)] == [False, True, True, False]
    assert METADATA["tool"]["ruff"]["target-version"] == f"py{first.replace('.', '')}"
    assert METADATA["tool"]["mypy"]["python_version"] == first
