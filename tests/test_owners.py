"""Counts of owners: every one counts, and the expression that asks does not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import proofgrad
from proofgrad import Tensor
from proofgrad.core.tensor.runtime.memory import buffer_of, memory_of
from proofgrad.core.tensor.runtime.owners import is_result_free, owners_of_attribute, owners_of_item
from proofgrad.core.tensor.runtime.result_pool import Spare

CORE = Path(proofgrad.__file__).resolve().parent.parent / "core"


def test_every_holder_counts_once() -> None:
    held = SimpleNamespace(one=object())
    counts = [owners_of_attribute(held, "one")]
    items = [held.one]
    counts += [owners_of_attribute(held, "one"), owners_of_item(items, 0)]
    again = held.one
    counts += [owners_of_attribute(held, "one")]
    pair = (again, again)
    counts += [owners_of_item(pair, 1)]
    del again, pair
    items.clear()
    counts += [owners_of_attribute(held, "one")]
    by_key = WeakKeyDictionary({held.__class__: held.one})
    counts += [owners_of_item(by_key, held.__class__)]
    assert counts == [1, 2, 2, 3, 5, 1, 2]


def test_a_result_is_free_when_no_node_array_or_tensor_has_it() -> None:
    for shape in ((4,), (2, 2)):
        node = Tensor.ones(*shape).contiguous().realize()._uop
        spare = Spare(node, memory_of(buffer_of(node)))
        assert not is_result_free(spare)
        del node
        found = [is_result_free(spare)]
        for holder in (lambda: spare.node, lambda: spare.buffer, lambda: spare.handle):
            kept = holder()
            found.append(is_result_free(spare))
            del kept
        reader = Tensor._new(spare.node, "CPU") + 1
        found.append(is_result_free(spare))
        del reader
        found.append(is_result_free(spare))
        assert found == [True, False, False, False, False, True]


def test_references_are_counted_in_one_position() -> None:
    found = [f.name for f in sorted(CORE.rglob("*.py")) if "getrefcount" in f.read_text()]
    assert found == ["owners.py"]
