"""Seed lines K01 to K11: what DEBUG, NOOPT and VIZ show."""

from __future__ import annotations

import os
import re

import pytest
from seed_lines import debug_text, differs, everything_printed, later, run_snippet

from proofgrad import Tensor


def test_K01_debug_1_counts_kernels() -> None:
    """DEBUG=1: kernel count and time: "1 kernels, X.Xms" """
    x = Tensor([1.0, 2.0]).realize()
    assert re.search(r"\b1 kernels?, +[\d.]+ ?ms", debug_text(1, lambda: (x + 1).realize()))


def test_K02_debug_2_names_kernels_and_copies() -> None:
    """DEBUG=2: kernels with name and shape, and copies of data"""
    text = debug_text(2, lambda: (Tensor([[1.0, 2.0, 3.0]]) + 1).realize())
    assert re.search(r"\bcopy\b", text, re.IGNORECASE) and re.search(r"\bE_\d", text)
    assert re.search(r"\bCPU\b", text) and re.search(r"\b3\b", text)


def test_K03_debug_3_prints_the_source() -> None:
    """DEBUG=3: the generated source (D-11)"""
    x = Tensor([1.0, 2.0, 3.0]).realize()
    assert re.search(r"define .*@E_", debug_text(3, lambda: (x + 47.5).realize()))


def test_K04_debug_4_prints_source_and_graphs() -> None:
    """DEBUG=4: generated code, and the graph after every stage (D-11)"""
    x = Tensor([1.0, 2.0, 3.0]).realize()
    text = debug_text(4, lambda: (x + 48.5).realize())
    assert re.search(r"define .*@E_", text) and "\nkernel\n" in text and "48.5" in text


@later("VIZ, the explorer of rewrites in a browser")
def test_K05_browser_shows_rewrites() -> None:
    """VIZ=1: a page with the graph after every rewrite"""
    run_snippet("from tinygrad.viz import serve")


def test_K06_noopt_turns_choices_and_algebra_off() -> None:
    """NOOPT=1: no choices, no algebra: `x * 1 + 0` keeps its operations (D-12)"""
    x = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
    plain = debug_text(3, lambda: (x * 1 + 0 + 5).realize(), NOOPT="1")
    tuned = debug_text(3, lambda: (x * 1 + 0 + 6).realize())
    assert "%i1_loop" in plain and "%i1_loop" not in tuned  # rows and columns, or one loop of both


@differs("D-13", "colours mark how an axis runs, as in tinygrad's code, not operations")
def test_K07_colours_mark_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """blue global, light blue local, red reduce, yellow upcast, purple unroll, green group"""
    x = Tensor.randn(16, 51).realize()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("DEBUG", "2")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with everything_printed() as coloured:
        x.sum(axis=1).realize()
    assert re.search(r"\x1b\[31m\D*51", coloured.getvalue()) or "\x1b[31m" in coloured.getvalue()
    assert "\x1b[" not in debug_text(2, lambda: x.sum(axis=0).realize())


def test_K08_debug_counts_when_set_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.environ['DEBUG'] = '2'` in the middle of a script"""
    monkeypatch.setenv("DEBUG", "0")
    with everything_printed() as text:
        run_snippet("""\
import os
from tinygrad import Tensor
before = (Tensor([1.0, 2.0]) * 3).realize()
os.environ['DEBUG'] = '2'

a = Tensor.randn(4, 4)   # no computation
b = a + 1                 # no computation - records ADD in graph
c = b * 2                 # no computation - records MUL in graph
d = c.relu()              # no computation - records RELU in graph

# Only now does tinygrad compile all 3 ops into ONE kernel
d.realize()               # prints: "1 kernels, X.Xms"
""")
    assert os.environ["DEBUG"] == "2"
    assert re.search(r"\bE(_\d+)*\b", text.getvalue()) and re.search(
        r"kernels?, +[\d.]+ ?ms", text.getvalue()
    )


def test_K09_stages_have_names() -> None:
    """DEBUG=4 labels the first graph, after folding, after the choice of loops, the last"""
    x = Tensor([[1.0, 2.0, 3.0]]).realize()
    text = debug_text(4, lambda: (x @ x.T + 49.5).realize())
    labels = re.findall(r"^--- kernel: (.+?) ->", text, re.MULTILINE)
    for name in ("movement to index terms", "simplify index terms", "choose axes", "linearize"):
        assert name in labels


def test_K10_slowest_kernels_are_found() -> None:
    """which kernels of a training step are slowest"""
    from proofgrad import profile

    x = Tensor.randn(64, 64).realize()
    with profile() as report:
        (x @ x).relu().sum().realize()
    rows = str(report).splitlines()
    assert any("r_" in row for row in rows)
    assert [row.seconds for row in report.rows] == sorted(
        [row.seconds for row in report.rows], reverse=True
    )


def test_K11_graphs_become_pictures() -> None:
    """pictures of graphs: `to_mermaid`, `to_dot`"""
    from proofgrad.uop import to_dot, to_mermaid

    node = Tensor([1, 2, 3, 4]).uop
    text = to_mermaid(node)
    assert text.splitlines()[0] == "flowchart LR"
    assert re.search(r'A\["COPY<br/>dtypes\.int<br/>arg=', text)
    assert text.count("-->") == sum(len(n.src) for n in node.toposort())
    assert "arg='PYTHON'" in text
    dot = to_dot(node)
    assert dot.startswith("digraph") and dot.count("->") == text.count("-->")
