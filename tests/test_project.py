"""What the repository promises about itself."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dragoman

ROOT = Path(__file__).parent.parent


def map_of_the_readme() -> set[str]:
    """Returns the paths of the README's tree that end in .py, two blanks a level."""
    _, tree = (ROOT / "README.md").read_text("utf-8").split("src/dragoman/\n")
    folder, files = "", set()
    for line in tree[: tree.index("```")].splitlines():
        name, indented = line.split()[0], line.startswith("    ")
        if name.endswith("/"):
            folder = name
        else:
            files.add(folder * indented + name)
    return files


def run_python(code: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return finished.stdout.strip()


def test_the_map_of_the_readme_lists_exactly_the_modules_that_exist() -> None:
    package = ROOT / "src" / "dragoman"
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    assert map_of_the_readme() == {name for name in modules if not name.endswith("__init__.py")}


def test_no_tracked_file_holds_a_path_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    path_of_a_machine = re.compile(r"(?<![\w.])/(?:work|tmp|root|home)/\w")
    for name in listed.stdout.split():
        text = (ROOT / name).read_text("utf-8", errors="ignore") if (ROOT / name).exists() else ""
        assert not path_of_a_machine.search(text), name


@pytest.mark.parametrize("name", dragoman.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(dragoman, name).__name__ == name
    assert name in dir(dragoman)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dragoman.no_such_name


def test_the_version_is_that_of_the_installed_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", dragoman.__version__)


def test_importing_dragoman_loads_no_torch() -> None:
    assert run_python("import dragoman, sys; print('torch' in sys.modules)") == "False"


def test_every_module_imports_on_a_python_that_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    least = tuple(map(int, declared["requires-python"].removeprefix(">=").split(".")))
    assert sys.version_info >= least
    package = ROOT / "src" / "dragoman"
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))
