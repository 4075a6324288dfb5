"""Strides, offset and mask of a view: elements found through them are the elements of the view."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from programs import Program, movement_only

from proofgrad import Tensor
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.view import ViewInfo, view_info
from proofgrad.core.tensor.runtime.memory import host_buffer
from proofgrad.core.tensor.runtime.reading import read
from proofgrad.uop import to_dot, to_mermaid

MEMORY = np.arange(1, 25, dtype=np.int32)


def through(info: ViewInfo) -> np.ndarray:
    """The elements of a view of MEMORY, by strides, offset and mask alone."""
    assert info.strides is not None and info.offset is not None
    found = np.zeros(info.shape, np.int32)
    for at in itertools.product(*map(range, info.shape)):
        box = info.mask or [(0, size) for size in info.shape]
        if all(begin <= k < end for k, (begin, end) in zip(at, box)):
            found[at] = MEMORY[info.offset + sum(k * s for k, s in zip(at, info.strides))]
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.T,
        lambda x: x[1:3, ::-1],
        lambda x: x[:, ::2].permute(1, 0),
        lambda x: x.pad(((1, 2), (0, 3))),
        lambda x: x.reshape(1, 4, 6).expand(3, 4, 6),
        lambda x: x.reshape(1, 4, 1, 6)[:, 1:3].T,
        lambda x: x[2:3].pad(((1, 0), (0, 2))).reshape(2, 1, 8),
        lambda x: x.reshape(2, 2, 3, 2)[:, 1, ::-2],
        lambda x: x[2].pad(((2, 1),)).flip(0),
    ],
)
def test_elements_are_found_through_strides_offset_and_mask(make: object) -> None:
    view = make(Tensor(MEMORY).realize().reshape(4, 6))  # type: ignore[operator]
    assert np.array_equal(through(view.view_info()), view.numpy())


def test_a_position_that_is_not_linear_has_an_index_and_no_strides() -> None:
    info = Tensor(MEMORY).realize().reshape(4, 6).T.reshape(24).view_info()
    assert (info.strides, info.offset) == (None, None)
    assert Ops.FLOORDIV in {node.op for node in info.index.toposort()}


def test_a_gate_that_is_no_box_is_told_as_a_gate() -> None:
    info = Tensor(MEMORY).realize().reshape(4, 6).pad(((1, 0), (0, 0))).reshape(30).view_info()
    assert info.mask == ((6, 30),)  # the rules find a box here
    diagonal = Tensor(MEMORY).realize().reshape(4, 6).pad(((0, 0), (0, 1))).reshape(28)
    assert diagonal.view_info().mask is None
    assert diagonal.view_info().condition is not None


def test_values_below_a_view_need_not_be_there() -> None:
    x = Tensor.rand(3, 5) + 1
    assert x.T.view_info().strides == (1, 5)
    assert x.uop.op is Ops.ADD


@given(movement_only())
@settings(max_examples=30, deadline=None)
def test_any_chain_of_movement_is_told_rightly(program: Program) -> None:
    """Where strides are told, they lead to the elements that the compiled kernel finds."""
    (parameter,) = [n for n in program.value.toposort() if n.op is Ops.PARAM]
    data = np.array(program.data[parameter.arg[0]], np.int32)
    buffer = host_buffer(data.tobytes(), parameter.dtype, "REFERENCE")
    value = program.value.substitute({parameter: buffer})
    if value.op is Ops.COPY or not np.prod(value.shape):
        return
    info = view_info(value)
    if info.strides is None or (info.condition is not None and info.mask is None):
        return
    expected = np.frombuffer(bytes(read(value, "REFERENCE")), np.int32).reshape(value.shape)
    found = np.zeros(value.shape, np.int32)
    for at in itertools.product(*map(range, value.shape)):
        box = info.mask or [(0, size) for size in value.shape]
        if all(begin <= k < end for k, (begin, end) in zip(at, box)):
            assert info.offset is not None
            found[at] = data[info.offset + sum(k * s for k, s in zip(at, info.strides))]
    assert np.array_equal(found, expected)


# -- pictures of graphs -------------------------------------------------------------------------


def test_mermaid_shows_a_box_a_node_and_an_arrow_a_source() -> None:
    two = UOp.index(2)
    assert to_mermaid(two + two) == (
        "flowchart LR\n"
        '    A["ADD<br/>dtypes.index<br/>arg=None"]\n'
        '    B["CONST<br/>dtypes.index<br/>arg=2"]\n'
        "    A --> B\n"
        "    A --> B\n"
        "    style A fill:#cfe8fc,stroke:#333\n"
        "    style B fill:#eeeeee,stroke:#333"
    )


def test_dot_escapes_what_it_quotes() -> None:
    text = to_dot(UOp(Ops.DEVICE, arg='a"b\\c'))
    assert "arg='a\\\"b\\\\\\\\c'" in text
    assert text.startswith("digraph {") and text.endswith("}")


def test_pictures_of_many_nodes_have_a_name_for_each() -> None:
    node = UOp.index(1)
    for k in range(60):
        node = node + UOp.index(k + 2)
    lines = to_mermaid(node).splitlines()
    names = [line.split("[")[0].strip() for line in lines if "[" in line]
    assert len(names) == len(set(names)) == 121


def test_view_of_what_carries_a_gradient_is_of_the_computed_memory() -> None:
    x = Tensor(MEMORY.reshape(4, 6)).float().realize()
    assert x.cat(x).T.view_info().strides == (1, 6)
    assert x[[0, 2]].view_info().strides == (6, 1)
