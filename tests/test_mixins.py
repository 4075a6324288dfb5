"""The classes of Tensor's methods inherit what they use: a base is no order of imports.

Owns: how the use of a class is read off the source of another. A class uses a base if one of its methods, or a
function of this folder that the method calls, names a method of the base, or of the parts that the base joins. Names that
graph nodes have as well (`cast`, `shape`) say nothing, nor do operators.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from textwrap import dedent
from types import FunctionType

import pytest

from proofgrad import Tensor
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.gradients import Gradients
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.methods.movement.joining import Movement

METHODS = TensorBase.__module__.rpartition(".")[0]  # the folder
MOST_MIXINS = 10
LONGEST_ORDER = 25  # Tensor.__mro__: lookups, and what a reader has to know
CLASSES = [c for c in Tensor.__mro__[1:-1] if c is not TensorBase]
OF_EVERY_CLASS = {"__annotations__", "__doc__", "__module__", "__slots__"}
OF_EVERY_CLASS |= {"__firstlineno__", "__static_attributes__"}  # from Python 3.13 on
# `where` is a method of nodes, too, but no method of Tensor asks a node for it.
AMBIGUOUS = (
    set(dir(UOp)) - {"where"}
    | set(dir(str))
    | set(dir(list))
    | set(dir(dict))
    | set(dir(TensorBase))
)


def own_names(kind: type) -> set[str]:
    """What the body of a class defines."""
    return set(vars(kind)) - OF_EVERY_CLASS


def is_join(kind: type) -> bool:
    return not own_names(kind)


def functions_of(kind: type) -> Iterator[FunctionType]:
    """The functions that a class defines, those below decorators and in properties too."""
    for member in vars(kind).values():
        plain = getattr(member, "__func__", member)
        plain = plain.fget if isinstance(plain, property) else plain
        if isinstance(plain, FunctionType):
            yield inspect.unwrap(plain)


def names_used(function: FunctionType, seen: set[FunctionType]) -> set[str]:
    """The attributes that a function names, and those that functions of this folder name for it."""
    if function in seen:
        return set()
    seen.add(function)
    tree = ast.parse(dedent(inspect.getsource(function)))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        called = function.__globals__.get(node.id) if isinstance(node, ast.Name) else None
        called = getattr(called, "__wrapped__", called)
        if isinstance(called, FunctionType) and called.__module__.startswith(METHODS):
            used |= names_used(called, seen)
    return used


def used_by(kind: type) -> set[str]:
    seen: set[FunctionType] = set()
    return {name for function in functions_of(kind) for name in names_used(function, seen)}


def offered_by(base: type) -> set[str]:
    """The methods of a class, or of the parts that it joins."""
    if is_join(base):
        return {name for part in base.__bases__ for name in offered_by(part)}
    return own_names(base)


def needless_bases(kind: type) -> list[str]:
    """The bases of which no method is used."""
    used = used_by(kind) - AMBIGUOUS
    bases = [base for base in kind.__bases__ if base is not TensorBase]
    return [base.__name__ for base in bases if not used & offered_by(base)]


@pytest.mark.parametrize("kind", [c for c in CLASSES if not is_join(c)], ids=lambda c: c.__name__)
def test_a_class_uses_each_class_that_it_inherits(kind: type) -> None:
    assert kind.__module__.startswith((METHODS, Gradients.__module__))
    assert not needless_bases(kind)


@pytest.mark.parametrize("kind", [c for c in CLASSES if is_join(c)], ids=lambda c: c.__name__)
def test_a_class_without_methods_joins_parts_of_its_own_folder(kind: type) -> None:
    """Several of them, none of which is a base of another: else it would be a second name."""
    assert len(kind.__bases__) > 1
    for part in kind.__bases__:
        assert part.__module__.rpartition(".")[0] == kind.__module__ == package_of(kind)
        assert not any(issubclass(other, part) for other in kind.__bases__ if other is not part)


def package_of(kind: type) -> str | None:
    return sys.modules[kind.__module__].__package__


def test_tensor_lists_few_classes_and_inherits_few() -> None:
    assert len(Tensor.__bases__) <= MOST_MIXINS
    assert len(Tensor.__mro__) <= LONGEST_ORDER


def test_no_method_hides_one_of_another_class() -> None:
    """Each name has one owner, whatever the order in which Tensor lists its classes."""
    wrong = []
    for number, kind in enumerate(CLASSES):
        for other in CLASSES[number + 1 :]:
            shared = own_names(kind) & own_names(other)
            wrong += [f"{name}: {kind.__name__} and {other.__name__}" for name in sorted(shared)]
    assert not wrong, wrong


class Planted(Movement):
    """Uses no method of what it inherits."""

    __slots__ = ()

    def alone(self) -> tuple[int, ...]:
        return tuple(self.shape)


def test_a_base_for_the_order_alone_is_found() -> None:
    assert needless_bases(Planted) == ["Movement"]
