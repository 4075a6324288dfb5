"""What a Kernel or Program graph stores, by brute force over its loops: the check of procedures.

Slow and plain on purpose; shares nothing with the compiler but the values of single operations.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from proofgrad.core.ir.evaluate import evaluate, from_bits, identity
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp


def run_kernel(kernel: UOp, buffers: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """The buffers after the kernel, or each of several in order, has run.

    The buffer that a kernel writes is made here and starts as all None; one that it combines with is there.
    """
    if kernel.src[0].op is Ops.SINK:
        for part in kernel.src:
            buffers = run_kernel(part, buffers)
        return buffers
    written, size = kernel.src[0].src[0].src[0].arg
    combines = kernel.src[0].arg is not None
    memory = {**buffers, written: list(buffers[written]) if combines else [None] * size}
    for store in kernel.src:
        loops = sorted(free_loops(store), key=lambda r: r.arg[0])
        for values in product(*[range(r.src[0].arg) for r in loops]):
            env = dict(zip(loops, values))
            place = store.src[0]
            if len(place.src) == 3 and not element(place.src[2], env, memory):
                continue
            index = element(place.src[1], env, memory)
            value = element(store.src[1], env, memory)
            if combines:
                value = evaluate(store.arg, store.src[1].dtype, (memory[written][index], value))
            else:
                assert memory[written][index] is None, f"element {index} is written twice"
            memory[written][index] = value
    return memory


def free_loops(node: UOp) -> set[UOp]:
    if node.op is Ops.RANGE:
        return {node}
    inner: set[UOp] = set()
    binds = node.op in (Ops.REDUCE, Ops.KEEP)
    for source in node.src[:1] if binds else node.src:
        inner |= free_loops(source)
    return inner - set(node.src[1:]) if binds else inner


def element(node: UOp, env: dict[UOp, int], memory: dict[int, list[Any]]) -> Any:
    match node.op:
        case Ops.CONST:
            return node.arg
        case Ops.RANGE:
            return env[node]
        case Ops.LOAD:
            place = node.src[0]
            if len(place.src) == 3 and not element(place.src[2], env, memory):
                return from_bits(0, node.dtype)
            index = element(place.src[1], env, memory)
            if place.src[0].op is Ops.KEEP:
                return kept(place.src[0], index, env, memory)
            buffer = memory[place.src[0].arg[0]]
            assert 0 <= index < len(buffer), f"index {index} is outside of {len(buffer)} elements"
            return buffer[index]
        case Ops.REDUCE:
            total = identity(node.arg, node.dtype)
            for values in product(*[range(r.src[0].arg) for r in node.src[1:]]):
                inner = {**env, **dict(zip(node.src[1:], values))}
                value = element(node.src[0], inner, memory)
                total = evaluate(node.arg, node.dtype, (total, value))
            return total
        case _ if node.op in ELEMENTWISE:
            args = [element(s, env, memory) for s in node.src]
            return evaluate(node.op, node.dtype, args, [s.dtype for s in node.src], node.arg)
    raise ValueError(f"{node.op!r} has no value in a kernel")


def kept(node: UOp, index: int, env: dict[UOp, int], memory: dict[int, list[Any]]) -> Any:
    """What KEEP holds at an index: its value for the loops whose row-major position it is."""
    loops = node.src[1:]
    assert 0 <= index < prod(loop.src[0].arg for loop in loops), f"{index} is outside of a row"
    inner = dict(env)
    for loop in reversed(loops):
        inner[loop] = index % loop.src[0].arg
        index //= loop.src[0].arg
    return element(node.src[0], inner, memory)
