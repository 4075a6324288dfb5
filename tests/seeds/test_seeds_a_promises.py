"""Seed lines A01 to A24: installation, packaging, documents, promises."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from seed_lines import ROOT, differs, in_new_process, later, page, run_snippet

from proofgrad.rules.procedures import lines_of

FOLDERS = ("proofgrad", "core", "rules", "verify", "backends", "proofs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def without_code(text: str) -> str:
    """A page without what stands in backticks, between fences, or behind four spaces."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|^ {4}.*$", "", text, flags=re.MULTILINE)


def code_lines(path: Path) -> int:
    """Lines with code on them: no blank lines, comments, docstrings."""
    return lines_of([path])


@pytest.fixture(scope="module")
def plain_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a program in another folder says about the modules that it loaded."""
    code = (
        "import sys\nfrom proofgrad import Tensor\nprint(Tensor.__name__)\n"
        "def loaded(): return sorted({'numpy', 'z3', 'lark', 'llvmlite'} & set(sys.modules))\n"
        "print('import', loaded())\nprint((Tensor([1, 2, 3]) * 2).tolist())\n"
        "print('lists', loaded())\nTensor([1]).numpy()\nprint('arrays', loaded())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path_factory.mktemp("elsewhere"),
        env={**os.environ, "CHECK": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sizes() -> str:
    """What `python benchmarks/sizes.py` prints."""
    return in_new_process("benchmarks/sizes.py")


def test_A01_installed_package_imports_elsewhere(plain_program: str) -> None:
    """`pip install`: `from proofgrad import Tensor` works in any folder"""
    assert importlib.metadata.version("proofgrad") == PROJECT["project"]["version"]
    assert plain_program.splitlines()[0] == "Tensor"


def test_A02_numpy_is_imported_when_arrays_come_out(plain_program: str) -> None:
    """numpy is imported only when an array comes in or goes out"""
    lines = plain_program.splitlines()
    assert "import []" in lines
    assert "[2, 4, 6]" in lines
    assert "numpy" not in next(line for line in lines if line.startswith("lists"))
    assert "numpy" in next(line for line in lines if line.startswith("arrays"))


def test_A03_editable_install_runs_the_tree() -> None:
    """`pip install -e .`: an edit takes effect at once, for the modules are those of the tree"""
    import proofgrad
    import proofgrad.core.ir.ops

    assert Path(proofgrad.__file__ or "").parent == ROOT / "proofgrad"
    assert Path(proofgrad.core.ir.ops.__file__) == ROOT / "core/ir/ops.py"


def test_A04_dev_extra_has_test_tools_and_linters() -> None:
    """`pip install -e ".[dev]"` brings pytest, pytest-timeout, linters"""
    names = {
        re.split(r"[<>=]", line)[0] for line in PROJECT["project"]["optional-dependencies"]["dev"]
    }
    assert {"pytest", "pytest-timeout", "ruff", "mypy"} <= names


@differs(
    "D-1",
    "llvmlite, numpy, z3-solver, lark are needed and named; each is imported when first needed",
)
def test_A05_dependencies_are_those_that_are_named(plain_program: str) -> None:
    """no hidden dependencies"""
    lines = [*PROJECT["project"]["dependencies"]]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        lines += extra
    listed = {re.split(r"[<>=\[]", line)[0] for line in lines}
    of_module = {"z3": "z3-solver", "sklearn": "scikit-learn", "cuda": "cuda-bindings"}
    found = {name for path in modules() for name in _imported(path)}
    known = {*sys.stdlib_module_names, "proofgrad"}
    known.add("torch")  # of callers who ask for its types: proofgrad.dtype, inside of a function
    assert {of_module.get(name, name) for name in found - known} <= listed
    readme = (ROOT / "README.md").read_text()
    for needed in PROJECT["project"]["dependencies"]:
        assert re.split(r"[<>=]", needed)[0] in readme
    assert "z3" not in plain_program.split("arrays")[1]


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_A06_everything_is_python() -> None:
    """everything in Python, nothing compiled of our own"""
    kinds = {
        path.suffix
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert kinds <= {".py", ".pyi", ".rules", ".json", ".md", ".lark", ".typed", ""}
    assert "ext-modules" not in PROJECT["tool"]["setuptools"]


@pytest.mark.long
@differs("D-2", "the lines of each folder are counted by `python benchmarks/sizes.py`")
def test_A07_size_is_measured(sizes: str) -> None:
    """~1,000 lines, ~5,000 lines, 13k lines"""
    total = re.search(r"^all +(\d+) +(\d+)$", sizes, re.MULTILINE)
    assert total is not None, sizes
    row = rf"^((?:{'|'.join(FOLDERS)})\S*) +\d+ +(\d+)$"
    folders = dict(re.findall(row, sizes, re.MULTILINE))
    assert int(total[2]) == sum(map(int, folders.values()))
    assert int(folders["core/ir"]) == sum([code_lines(p) for p in (ROOT / "core/ir").glob("*.py")])


@differs("D-17", "an int list prints as ints, `[1 2 3]`")
def test_A08_setup_is_verified_by_three_lines() -> None:
    """verify the setup: default device and an array"""
    ran = run_snippet("""\
from tinygrad import Tensor, Device
print(Device.DEFAULT)           # shows your default backend (CUDA, METAL, CLANG, etc.)
print(Tensor([1,2,3]).numpy())  # [1. 2. 3.]
""")
    assert ran.printed[1] == "[1 2 3]"


def test_A09_guide_runs_as_a_script() -> None:
    """`DEBUG=2 CPU=1 python docs/ramp.py`"""
    printed = in_new_process("docs/ramp.py", DEBUG="2", CPU="1")
    assert "CPU" in printed and "E_4" in printed


def test_A10_introduction_shows_laziness_and_fusion() -> None:
    """`projects/00_intro.py`: lazy evaluation, fusion, views; it prints kernel counts"""
    scripts = sorted((ROOT / "examples").rglob("00_intro.py"))
    assert scripts, "examples/**/00_intro.py"
    printed = in_new_process(str(scripts[0]))
    assert re.search(r"\bkernels?\b", printed)


PAGES = (
    "guide.md", "kernel.md", "ops.md", "ops-elementwise.md", "ops-reduce.md",
    "ops-movement.md", "projects.md",
)  # fmt: skip


def test_A11_documents_are_there_with_examples_and_links_that_lead_somewhere() -> None:
    """a guide, notes, pages for operations and projects; every page runs an example"""
    for name in PAGES:
        assert "```python" in page(name) or "```console" in page(name), name
    broken = []
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]:
        for target in re.findall(r"\]\(([^)#\s]+)", without_code(path.read_text())):
            if not target.startswith(("http:", "https:")) and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert not broken


def test_A12_hacking_page_shows_the_inside() -> None:
    """a page for hackers: graph, IR, schedule, custom operations, backends"""
    text = page("kernel.md")
    for subject in (".uop", ".shape", "DEBUG=4", "schedule()", "add-a-backend.md"):
        assert subject in text


def test_A13_annotated_walk_runs() -> None:
    """an annotated walk through the architecture that runs"""
    printed = in_new_process("docs/abstractions.py")
    for form in ("TensorGraph", "KernelGraph", "Kernel", "Linear", "Source", "Binary"):
        assert form in printed


def test_A14_glossary_explains_the_words_of_the_tutorial() -> None:
    """Device, Lazy/Realize, UOp, DAG, Kernelize, ShapeTracker, Upcast; each links to a symbol"""
    text = page("guide.md")
    for word in ("Device", "Realize", "UOp", "DAG", "Kernelize", "ShapeTracker", "Upcast"):
        row = re.search(rf"^\| {word} \|.*\| `([\w./]+)` `([\w.]+)` \|$", text, re.MULTILINE)
        assert row is not None, word
        assert row[2].rpartition(".")[2] in (ROOT / row[1]).read_text(), word


@differs("D-17", "the tutorials' file names are mapped to the modules of today")
def test_A15_reading_list_names_files_that_exist() -> None:
    """a reading list of sources, in order"""
    text = page("reading-list.md")
    ours = re.findall(r"`((?:core|proofgrad|backends|rules|verify)/[\w/.]+)`", text)
    assert len(ours) >= 15
    assert [path for path in ours if not (ROOT / path).exists()] == []
    for old in ("tensor.py", "engine/lazy.py", "engine/schedule.py", "codegen/uops.py",
                "codegen/lowerer.py", "codegen/linearizer.py", "renderer/cstyle.py",
                "runtime/ops_clang.py", "runtime/ops_cuda.py", "shape/symbolic.py"):  # fmt: skip
        assert old in text


def test_A16_learning_paths_have_times() -> None:
    """paths of learning, with times"""
    text = page("reading-list.md")
    assert re.search(r"\| [^|]+ \| [^|]*(minutes|hours|days|weeks)", text)


def test_A17_simplest_backend_can_be_read() -> None:
    """the simplest backend is short: read it first"""
    assert code_lines(ROOT / "backends/cpu/backend.py") < 150
    assert code_lines(ROOT / "backends/reference/__init__.py") < 150


@pytest.mark.long
def test_A18_command_lines_for_tests_work() -> None:
    """`python -m pytest test/ -x`, one file, one test, DEVICE=CLANG, --timeout=300"""
    everything = in_new_process(
        "-m", "pytest", "test/", "-x", "--timeout=300", "-v", "-p", "no:cacheprovider",
        DEVICE="CLANG",
    )  # fmt: skip
    assert re.search(r"test/test_ops\.py \.+", everything)
    assert re.search(r"test/test_tensor\.py \.+", everything)
    one = in_new_process("-m", "pytest", "test/test_ops.py::TestOps::test_relu", "-v")
    assert "1 passed" in one


def test_A19_contributing_says_what_and_how() -> None:
    """CONTRIBUTING.md: kinds of contributions, the standard"""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for kind in ("operation", "layer", "backend", "bug", "documentation", "rule"):
        assert kind in text.lower()
    assert "ruff" in text and "pytest" in text


def test_A20_status_has_a_criterion() -> None:
    """alpha until twice as fast as PyTorch on one NVIDIA GPU"""
    readme = (ROOT / "README.md").read_text()
    assert "alpha" in readme and "1.0" in readme


@pytest.mark.long
def test_A21_operations_and_lines_of_the_smallest_backend_are_counted(sizes: str) -> None:
    """the easiest framework to add accelerators to; how many operations"""
    from proofgrad import Ops

    assert f"operations            {len(Ops)}" in sizes
    lines = code_lines(ROOT / "backends/reference/__init__.py")
    assert f"smallest backend      {lines} lines" in sizes


def test_A22_no_trainer_hides_the_loop() -> None:
    """no `trainer.fit()`: nothing hides the training loop"""
    defined = {
        node.name
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    assert not defined & {"fit", "Trainer", "trainer"}


@later("ONNX; the rest of the line is about hardware that others sell")
def test_A23_openpilot_models_load() -> None:
    """openpilot runs its ONNX models"""
    run_snippet("from tinygrad.nn.onnx import OnnxRunner")


def test_A24_entry_points_of_the_documentation_exist() -> None:
    """quickstart, training on digits, runtime, examples, notes on the inside"""
    readme = (ROOT / "README.md").read_text()
    for name in ("quickstart.md", "guide.md", "add-a-backend.md", "kernel.md", "projects.md"):
        assert f"docs/{name}" in readme, name
    assert "```" in page("quickstart.md")
