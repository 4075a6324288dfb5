"""OpenCL C for loads and stores of vectors: contiguous, gathered and scattered, masked as a whole or lane by lane.

Owns: how lanes move between memory and registers. Does not own: where an index is computed (emit.py), the operations
(vectors.py). Elements of bools are bytes in memory. A vector in memory is the only member of a packed structure, which may begin
at any element: that is as standard as vload, which PoCL calls as a function each time. Where the lanes of a mask all hold, which is everywhere but at an end, the
access is one; else its halves are, and so on: at an end the first lanes hold, and few are asked one by one. A load whose lanes all lie inside
of their memory, whatever the mask says, is one as well, of which the lanes that hold are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proofgrad.backends.opencl.functions import Functions, constant, memory_type
from proofgrad.backends.opencl.strided import is_read_whole, picked, step_of
from proofgrad.backends.opencl.vectors import choice, in_parts, lane, mask_of, vector_type
from proofgrad.core.ir.dtypes import DType, dtypes

# Masked lanes that are asked one by one where not all hold.
FEWEST_LANES = 4
# What is asked in a loop, and what is done where few lanes hold: a call there shall cost those alone that come there.
INLINE, RARE = "__attribute__((always_inline))", "__attribute__((noinline))"
# Integers as wide as so many bools.
_AS_ONE = {2: "short", 4: "int", 8: "long"}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a vector lies: the texts of the memory, of the index and of the mask."""

    memory: str
    space: str  # the address space of the memory, as it is written
    index: str
    lanes: tuple[str, ...] = ()  # the index of each, where they do not lie side by side
    apart: tuple[int, ...] = ()  # how far each lies behind `index`, where that is known
    mask: str = ""
    has_mask_a_lane: bool = False
    known: tuple[bool, ...] = ()  # the lanes of the mask, where they are known
    last: int = (
        -1
    )  # the greatest index from which on all lanes are inside of the memory, where that is known


def load(position: Position, dtype: DType, functions: Functions) -> str:
    """The expression of a loaded vector."""
    step = step_of(position.apart)
    if position.lanes and not is_read_whole(step, dtype.lanes):
        loaded = _gathered(position, dtype)
    elif position.lanes:
        name = functions.define(*_strided_load(position, dtype, step, functions))
        loaded = f"{name}({_first(position)})"
        if position.mask:
            every = _every(position.mask, dtype.lanes, functions)
            holds = every if position.has_mask_a_lane else position.mask
            loaded = f"({holds} ? {loaded} : {_gathered(position, dtype)})"
    elif position.known:
        loaded = _known_load(position, dtype, position.known, 0, functions)
    elif position.has_mask_a_lane:
        loaded = _masked(position, dtype, functions)
    else:
        element = f"({position.memory} + {position.index})"
        loaded = f"(({position.space} const {_packed(dtype, functions)} *){element})->v"
        if position.mask:
            loaded = f"({position.mask} ? {loaded} : {_zeros(dtype)})"
    return f"convert_char{dtype.lanes}({loaded} != {_zeros(dtype)})" if dtype.is_bool else loaded


def store(position: Position, dtype: DType, value: str, functions: Functions) -> list[str]:
    """The statements that store a vector, which has a name."""
    lanes = dtype.lanes
    if position.lanes:
        return [_lane_store(position, dtype, value, number) for number in range(lanes)]
    value = f"as_uchar{lanes}({value} & (char{lanes})(1))" if dtype.is_bool else value
    if position.has_mask_a_lane:
        name = functions.define(*_masked_store(position, dtype, functions))
        return [f"{name}({value}, {position.memory} + {position.index}, {position.mask});"]
    only = f"if ({position.mask}) " if position.mask else ""
    element = f"({position.memory} + {position.index})"
    return [f"{only}(({position.space} {_packed(dtype, functions)} *){element})->v = {value};"]


def _packed(dtype: DType, functions: Functions) -> str:
    """A vector that begins at any element."""
    vector = _memory_vector(dtype)
    attributes = f"__attribute__((packed, aligned({dtype.scalar.itemsize})))"
    text = f"typedef struct {attributes} {{ {vector} v; }} packed_{vector};"
    return functions.declare(f"packed_{vector}", text)


def _lane_store(position: Position, dtype: DType, value: str, number: int) -> str:
    only = _lane_mask(position, number)
    target = f"{position.memory}[{position.lanes[number]}]"
    return f"{f'if ({only}) ' if only else ''}{target} = {lane(value, number)}{' & 1' if dtype.is_bool else ''};"


def _lane_mask(position: Position, number: int) -> str:
    return lane(position.mask, number) if position.has_mask_a_lane else position.mask


def _gathered(position: Position, dtype: DType) -> str:
    lanes = []
    for number in range(dtype.lanes):
        element, only = (
            f"{position.memory}[{position.lanes[number]}]",
            _lane_mask(position, number),
        )
        lanes.append(f"({only} ? {element} : {_zero(dtype)})" if only else element)
    return f"(({_memory_vector(dtype)})({', '.join(lanes)}))"


def _memory_vector(dtype: DType) -> str:
    return f"uchar{dtype.lanes}" if dtype.is_bool else vector_type(dtype)


def _zero(dtype: DType) -> str:
    return "0" if dtype.is_bool else constant(0, dtype.scalar)


def _zeros(dtype: DType) -> str:
    return f"(({_memory_vector(dtype)})({_zero(dtype)}))"


def _first(position: Position) -> str:
    """The address of the first lane."""
    behind = f" + {position.apart[0]}" if position.apart[0] else ""
    return f"{position.memory} + {position.index}{behind}"


def _known_load(
    position: Position, dtype: DType, known: Sequence[bool], first: int, functions: Functions
) -> str:
    """Of lanes that are known, from one on: nothing, one access, or their halves; of few lanes each by itself."""
    vector, count = _memory_vector(dtype), dtype.lanes
    address = f"{position.memory} + {position.index} + {first}"
    if not any(known):
        return _zeros(dtype)
    if all(known):
        return f"(({position.space} const {_packed(dtype, functions)} *)({address}))->v"
    if count <= FEWEST_LANES:
        lanes = [f"({address})[{k}]" if on else _zero(dtype) for k, on in enumerate(known)]
        return f"({vector})({', '.join(lanes)})"
    of_half, half = _half(dtype), count // 2
    parts = [
        _known_load(position, of_half, known[k : k + half], first + k, functions) for k in (0, half)
    ]
    return f"({vector})({', '.join(parts)})"


def _masked_load(position: Position, dtype: DType, functions: Functions) -> tuple[str, str]:
    """A function: one access where all lanes hold, else its halves do; of few lanes each by itself.

    What is rare is a function of its own, and the question before it is none: compilers keep no sum in a register across a call.
    """
    vector, element = _memory_vector(dtype), memory_type(dtype.scalar)
    name = f"load_{position.space}_{vector}"
    if dtype.lanes > FEWEST_LANES:
        half = functions.define(*_masked_load(position, _half(dtype), functions))
        rest = f"({vector})({half}(p, m.lo), {half}(p + {dtype.lanes // 2}, m.hi))"
    else:
        lanes = [f"m.s{k:x} ? p[{k}] : {_zero(dtype)}" for k in range(dtype.lanes)]
        rest = (
            f"as_{_AS_ONE[dtype.lanes]}(m) != 0 ? ({vector})({', '.join(lanes)}) : {_zeros(dtype)}"
        )
    every = _every("m", dtype.lanes, functions)
    given = f"({position.space} const {element} *p, char{dtype.lanes} m)"
    part = functions.define(
        f"{name}_part", f"{RARE} {vector} {name}_part{given} {{ return {rest}; }}"
    )
    return (
        name,
        f"""{INLINE} {vector} {name}{given} {{
  if ({every}) return (({position.space} const {_packed(dtype, functions)} *)p)->v;
  return {part}(p, m);
}}""",
    )


def _inside_load(position: Position, dtype: DType, functions: Functions) -> tuple[str, str]:
    """The same, asked whether all lanes lie inside of the memory as well: then it is one access, of which some lanes are taken."""
    vector, element = _memory_vector(dtype), memory_type(dtype.scalar)
    plain = functions.define(*_masked_load(position, dtype, functions))
    name = f"load_inside_{position.space}_{vector}"
    whole = f"(({position.space} const {_packed(dtype, functions)} *)p)->v"
    every = _every("m", dtype.lanes, functions)
    taken = _taken("m", dtype, whole, functions)
    return (
        name,
        f"""{INLINE} {vector} {name}({position.space} const {element} *p, char{dtype.lanes} m, int is_inside) {{
  if ({every}) return {whole};
  if (is_inside) return {taken};
  return {plain}_part(p, m);
}}""",
    )


def _taken(mask: str, dtype: DType, vector: str, functions: Functions) -> str:
    """The lanes of a vector that hold; 0 in others."""

    def write(kind: DType, operands: Sequence[str], _: Sequence[DType]) -> str:
        return choice(mask_of(operands[0], kind), operands[1], _zeros(kind))

    kinds = (dtypes.bool.vec(dtype.lanes), dtype)
    return in_parts(write, dtype, (mask, vector), kinds, functions.called_bytes)


def _masked(position: Position, dtype: DType, functions: Functions) -> str:
    """A load of the lanes that hold."""
    given = f"{position.memory} + {position.index}, {position.mask}"
    if position.last < 0:
        return f"{functions.define(*_masked_load(position, dtype, functions))}({given})"
    is_inside = f"0 <= {position.index} && {position.index} <= {position.last}"
    return f"{functions.define(*_inside_load(position, dtype, functions))}({given}, {is_inside})"


def _strided_load(
    position: Position, dtype: DType, step: int, functions: Functions
) -> tuple[str, str]:
    """A function that reads lanes which are so many elements apart."""
    vector, element = _memory_vector(dtype), memory_type(dtype.scalar)
    packed = f"{position.space} const {_packed(dtype, functions)} *"
    name = f"load_{position.space}_{vector}_by_{step}".replace("-", "minus_")
    body = picked(step, dtype.lanes, vector, packed)
    return name, f"{vector} {name}({position.space} const {element} *p) {{\n{body}\n}}"


def _masked_store(position: Position, dtype: DType, functions: Functions) -> tuple[str, str]:
    vector, element = _memory_vector(dtype), memory_type(dtype.scalar)
    name = f"store_{position.space}_{vector}"
    if dtype.lanes > FEWEST_LANES:
        half = functions.define(*_masked_store(position, _half(dtype), functions))
        rest = f"{half}(x.lo, p, m.lo); {half}(x.hi, p + {dtype.lanes // 2}, m.hi);"
    else:
        rest = " ".join([f"if (m.s{k:x}) p[{k}] = x.s{k:x};" for k in range(dtype.lanes)])
    given = f"({vector} x, {position.space} {element} *p, char{dtype.lanes} m)"
    part = functions.define(f"{name}_part", f"{RARE} void {name}_part{given} {{ {rest} }}")
    every = _every("m", dtype.lanes, functions)
    return (
        name,
        f"""{INLINE} void {name}{given} {{
  if ({every}) (({position.space} {_packed(dtype, functions)} *)p)->v = x;
  else {part}(x, p, m);
}}""",
    )


def _every(mask: str, lanes: int, functions: Functions) -> str:
    """Whether all lanes of bools, each 0 or -1, hold: as integers, for PoCL calls a function for all()."""
    parts = ("m",) if lanes <= 8 else ("m.lo", "m.hi")
    kind = _AS_ONE[lanes // len(parts)]
    body = " && ".join([f"as_{kind}({part}) == -1" for part in parts])
    name = f"every_char{lanes}"
    return f"{functions.define(name, f'{INLINE} int {name}(char{lanes} m) {{ return {body}; }}')}({mask})"


def _half(dtype: DType) -> DType:
    return dtype.scalar.vec(dtype.lanes // 2)
