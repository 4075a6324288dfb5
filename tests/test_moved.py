"""Old names of modules say their new ones."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

import proofgrad  # noqa: F401  (its finder)
from proofgrad.moved import ABSENT, MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_raises_with_the_new_one(old: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=MOVED[old].replace(".", r"\.")):
        import_module(old)
    assert find_spec(MOVED[old]) is not None


@pytest.mark.parametrize("name", ABSENT)
def test_a_module_of_tinygrad_s_inside_raises_with_what_does_the_same(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"there is no {name}: "):
        import_module(f"{name}.anything")


def test_other_modules_are_missing_as_ever() -> None:
    with pytest.raises(
        ModuleNotFoundError, match="No module named 'proofgrad.core.compile.nothing'"
    ):
        import_module("proofgrad.core.compile.nothing")
