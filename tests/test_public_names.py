"""Every public function, class and method says in a docstring what it is, as benchmarks/sizes.py counts them."""

from __future__ import annotations

import ast
from pathlib import Path

import sizes

ROOT = Path(__file__).parent.parent
BASES = """
class Base:
    def described(self): "What it does."
    def silent(self): ...
    def _private(self): ...

class Next(Base):
    "A class."
    def described(self): ...
    def silent(self): ...

class Last(Next):
    "A class."
    def described(self): ...
    @property
    def size(self): "How large."
    @size.setter
    def size(self, value): ...

def told(): "What it gives."
def untold(): ...
def _helper(): ...
"""


def test_every_public_name_has_a_docstring() -> None:
    trees = {
        path.relative_to(ROOT): ast.parse(path.read_text("utf-8"))
        for paths in sizes.modules().values()
        for path in paths
    }
    inherited = sizes.described_methods(list(trees.values()))
    missing = [
        f"{path}: {name}"
        for path, tree in trees.items()
        for name in sizes.without_docstring(tree, inherited)
    ]
    assert len(trees) > 300
    assert not missing, "\n".join(missing)


def test_names_without_docstring_are_found_and_overrides_inherit_theirs() -> None:
    tree = ast.parse(BASES)
    inherited = sizes.described_methods([tree])
    found = list(sizes.without_docstring(tree, inherited))
    assert found == ["Base", "Base.silent", "Next.silent", "untold"]
    assert "Last.described" in list(sizes.without_docstring(tree))


def test_of_two_classes_of_one_name_both_have_to_describe_a_method() -> None:
    silent = ast.parse("class Base:\n    'A class.'\n    def described(self): ...\n")
    inherited = sizes.described_methods([ast.parse(BASES), silent])
    assert "described" not in inherited["Base"]
