"""What an installation holds, and what its metadata says. `.ci/wheel` builds a wheel and runs the demo from it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import proofgrad

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of .ci/."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folder_of(package: str) -> Path:
    top = max((p for p in SETUPTOOLS["package-dir"] if f"{package}.".startswith(f"{p}.")), key=len)
    rest = package.removeprefix(top).strip(".").replace(".", "/")
    return ROOT / SETUPTOOLS["package-dir"][top] / rest


def test_version_is_said_once() -> None:
    assert PROJECT["project"]["version"] == proofgrad.__version__
    assert f"\n## {proofgrad.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_every_file_of_a_package_is_installed() -> None:
    """Code is, where the package is listed (test_layout.py); data is, where a pattern names it."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("no checkout of git")
    covered = {
        path
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for path in folder_of(package).glob(pattern)
    }
    tops = set(SETUPTOOLS["package-dir"].values())
    data = [
        ROOT / name
        for name in tracked.stdout.splitlines()
        if name.split("/")[0] in tops and not name.endswith(".py")
    ]
    assert not [str(path) for path in data if path not in covered and path.exists()]


def test_links_show_every_package_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = loaded("layout", monkeypatch)
    layout.lay_out(tmp_path / "proofgrad")
    for package in SETUPTOOLS["packages"]:
        assert (tmp_path / package.replace(".", "/") / "__init__.py").is_file(), package
    layout.lay_out(tmp_path / "proofgrad")  # again, over what is there
    assert (tmp_path / "proofgrad" / "core").resolve() == ROOT / "core"


def test_type_checker_sees_the_links_under_the_name_of_stubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an environment of nothing but the .pth file that an editable install adds."""
    layout = loaded("layout", monkeypatch)
    stubs = tmp_path / "links" / "proofgrad-stubs"
    layout.lay_out(stubs)
    (stubs / "__init__.pyi").symlink_to(stubs / "__init__.py")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "types.pth").write_text(f"{stubs.parent}\n")
    script = tmp_path / "script.py"
    script.write_text(
        "from proofgrad import Tensor, TinyJit, nn\n"
        "@TinyJit\ndef step(x: Tensor) -> Tensor: return nn.Linear(2, 3)(x)\n"
        "right: Tensor = step(Tensor([1.0]).sum())\n"
        "wrong: int = step(Tensor([1.0]))\n"
    )
    options = ["--python-executable", str(tmp_path / "venv" / "bin" / "python"), "--no-incremental"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = ran.stdout + ran.stderr
    assert "import-not-found" not in found
    assert 'expression has type "Tensor", variable has type "int"' in found
    assert "Found 1 error in 1 file" in found


def test_file_is_added_to_a_wheel_and_to_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = loaded("wheel_files", monkeypatch)
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("a-1.dist-info/RECORD", "a-1.dist-info/RECORD,,\n")
        made.writestr("a.py", "x = 1\n")
    files.add_file(wheel, "b.pth", b"/somewhere\n")
    with zipfile.ZipFile(wheel) as made:
        assert made.read("b.pth") == b"/somewhere\n"
        assert made.read("a.py") == b"x = 1\n"
        lines = made.read("a-1.dist-info/RECORD").decode().splitlines()
    assert lines[0].startswith("b.pth,sha256=") and lines[0].endswith(",11")
    assert lines[1] == "a-1.dist-info/RECORD,,"


def test_every_page_is_in_the_site() -> None:
    listed = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert sorted(listed) == sorted([page.name for page in (ROOT / "docs").glob("*.md")])


def test_links_out_of_the_pages_are_shown_as_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = loaded("docs_links", monkeypatch).on_page_markdown
    page = "[a](../rules/x.rules), [`ramp.py`](ramp.py), [b](guide.md), [CONTRIBUTING.md](../CONTRIBUTING.md)"
    assert shown(page) == (
        "a (`rules/x.rules`), `ramp.py` (`docs/ramp.py`), [b](guide.md), `CONTRIBUTING.md`"
    )
