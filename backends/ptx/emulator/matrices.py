"""Products of small matrices whose elements lie in the registers of a warp: mma.sync, and ldmatrix that fills them.

Owns: which lane holds which element. Does not own: how lanes exchange words (meeting.py).

Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction", the figures of each shape: `group` is the lane
by 4, `position` the lane modulo 4. A GPU adds the products of one instruction in an order, and with a rounding, that NVIDIA does
not say; here they are added in float64 and rounded once. Sums of products of bytes are exact, modulo 2 ** 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proofgrad.backends.ptx.emulator.access import check_shared
from proofgrad.backends.ptx.emulator.function import FRAME, WARP, Function, Operation
from proofgrad.backends.ptx.emulator.meeting import lay_down, taken_up, word_of
from proofgrad.backends.ptx.emulator.parse import Instruction, Refused, listed

_Element = Callable[[int, int, int], tuple[int, int]]  # group, position, number -> row, column


@dataclass(frozen=True, slots=True)
class Fragments:
    """A shape for elements of so many bytes: how many each lane holds of A, B and C, and which."""

    rows: int
    columns: int
    depth: int
    nbytes: int
    of_a: tuple[int, _Element]
    of_b: tuple[int, _Element]
    of_c: tuple[int, _Element]


def _result(group: int, position: int, k: int) -> tuple[int, int]:
    return group + 8 * (k // 2), 2 * position + k % 2


HALVES_16 = Fragments(
    16, 8, 16, 2,
    (8, lambda group, position, k: (group + 8 * (k // 2 % 2), 2 * position + k % 2 + 8 * (k // 4))),
    (4, lambda group, position, k: (2 * position + k % 2 + 8 * (k // 2), group)),
    (4, _result),
)  # fmt: skip
HALVES_8 = Fragments(
    16, 8, 8, 2,
    (4, lambda group, position, k: (group + 8 * (k // 2), 2 * position + k % 2)),
    (2, lambda group, position, k: (2 * position + k % 2, group)),
    (4, _result),
)  # fmt: skip
WORDS_8 = Fragments(
    16, 8, 8, 4,
    (4, lambda group, position, k: (group + 8 * (k % 2), position + 4 * (k // 2))),
    (2, lambda group, position, k: (position + 4 * k, group)),
    (4, _result),
)  # fmt: skip
WORDS_4 = Fragments(
    16, 8, 4, 4,
    (2, lambda group, position, k: (group + 8 * k, position)),
    (1, lambda group, position, k: (position, group)),
    (4, _result),
)  # fmt: skip
DOUBLES_4 = Fragments(
    8, 8, 4, 8,
    (1, lambda group, position, k: (group, position)),
    (1, lambda group, position, k: (position, group)),
    (2, _result),
)  # fmt: skip
BYTES_32 = Fragments(
    16, 8, 32, 1,
    (16, lambda group, position, k: (group + 8 * (k // 4 % 2), 4 * position + k % 4 + 16 * (k // 8))),
    (8, lambda group, position, k: (4 * position + k % 4 + 16 * (k // 4), group)),
    (4, _result),
)  # fmt: skip
SHAPES: dict[tuple[str, str], Fragments] = {
    ("m16n8k16", "f16"): HALVES_16,
    ("m16n8k16", "bf16"): HALVES_16,
    ("m16n8k8", "f16"): HALVES_8,
    ("m16n8k8", "bf16"): HALVES_8,
    ("m16n8k8", "tf32"): WORDS_8,
    ("m16n8k4", "tf32"): WORDS_4,
    ("m16n8k32", "s8"): BYTES_32,
    ("m16n8k32", "u8"): BYTES_32,
    ("m8n8k4", "f64"): DOUBLES_4,
}


_TOTALS = {"f64": "f64", "s8": "s32", "u8": "s32"}  # of all others float32


def _multiply(f: Function, ins: Instruction) -> None:
    """D = A B + C, for all lanes of a warp."""
    shape = next(part for part in ins.parts if part[0] == "m" and part[1:2].isdigit())
    kinds = ins.parts[-4:]
    fragments = SHAPES[shape, kinds[1]]
    total = _TOTALS.get(kinds[1], "f32")
    if kinds != (total, kinds[1], kinds[1], total) or ("row", "col") != ins.parts[4:6]:
        raise Refused("these types and orders")
    words = [word for operand in ins.operands[1:4] for word in _words(f, operand, total)]
    offset = lay_down(f, words)
    c = len(words) - fragments.of_c[0] * (2 if total == "f64" else 1)
    name = f"product.{shape}.{kinds[1]}"
    f.declarations[name] = "\n".join(product_function(name, fragments, kinds[1], 4 * c))
    f.declarations["llvm.fma.f64"] = "declare double @llvm.fma.f64(double, double, double)"
    f.call("void", name, ("ptr", "%frames"), ("i64", FRAME), ("i32", "%tid"), ("i64", str(offset)))
    bits = 64 if total == "f64" else 32
    for k, register in enumerate(listed(ins.operands[0])):
        position = f.let(f"getelementptr i8, ptr %frame, i64 {offset + 4 * c + k * bits // 8}")
        f.write(register, f.let(f"load i{bits}, ptr {position}"), f"b{bits}")
    taken_up(f)


def _words(f: Function, operand: str, total: str) -> Iterator[str]:
    """The words of a fragment's registers."""
    for register in listed(operand):
        if total == "f64":
            value = f.read(register, 64)
            yield f.resized(value, 64, 32)
            yield f.resized(f.let(f"lshr i64 {value}, 32"), 64, 32)
        else:
            yield f.read(register, 32)


def _positions(fragments: Fragments, which: str) -> list[int]:
    """For each element, row by row: the lane that holds it, times 65536, and its byte of what is laid down."""
    rows, columns = (
        (fragments.rows, fragments.depth) if which == "a" else (fragments.depth, fragments.columns)
    )
    count, element = fragments.of_a if which == "a" else fragments.of_b
    start = 0 if which == "a" else fragments.of_a[0] * fragments.nbytes
    found = [-1] * (rows * columns)
    for lane in range(WARP):
        for k in range(count):
            row, column = element(lane // 4, lane % 4, k)
            found[row * columns + column] = lane << 16 | start + k * fragments.nbytes
    return found


def _results(fragments: Fragments) -> list[int]:
    """For each lane and each of its results: the row, times 65536, and the column."""
    count, element = fragments.of_c
    pairs = [element(lane // 4, lane % 4, k) for lane in range(WARP) for k in range(count)]
    return [row << 16 | column for row, column in pairs]


def product_function(name: str, fragments: Fragments, kind: str, c: int) -> list[str]:
    """A function that writes the results of one lane over its own part of C, which begins at byte `c`."""
    tables = {
        "a": _positions(fragments, "a"), "b": _positions(fragments, "b"), "c": _results(fragments),
    }  # fmt: skip
    lines = []
    for table, numbers in tables.items():
        words = ", ".join([f"i32 {number}" for number in numbers])
        lines.append(f"@{name}.{table} = internal constant [{len(numbers)} x i32] [{words}]")
    count = fragments.of_c[0]
    total, to_double, back = _AS_TOTAL[_TOTALS.get(kind, "f32")]
    start, last = ("%start", "%rounded") if to_double else ("%own", "%sum1")
    return [
        *lines,
        f"""define internal void @{name}(ptr %frames, i64 %bytes, i32 %tid, i64 %offset) nounwind {{
entry:
  %lane = and i32 %tid, {WARP - 1}
  %warp = and i32 %tid, {-WARP}
  br label %result
result:
  %r = phi i32 [ 0, %entry ], [ %r1, %written ]
  %first = mul i32 %lane, {count}
  %which = add i32 %first, %r
  %entry_c = getelementptr i32, ptr @{name}.c, i32 %which
  %pair = load i32, ptr %entry_c
  %row = lshr i32 %pair, 16
  %column = and i32 %pair, 65535
  %own_at = call ptr @{name}.at(ptr %frames, i64 %bytes, i32 %warp, i32 %lane, i64 %offset, i32 {c})
  %own_position = getelementptr {total}, ptr %own_at, i32 %r
  %own = load {total}, ptr %own_position, align 4
{to_double}  br label %step
step:
  %k = phi i32 [ 0, %result ], [ %k1, %step ]
  %sum = phi double [ {start}, %result ], [ %sum1, %step ]
  %a_row = mul i32 %row, {fragments.depth}
  %a_index = add i32 %a_row, %k
  %b_row = mul i32 %k, {fragments.columns}
  %b_index = add i32 %b_row, %column
  %a = call double @{name}.value(ptr %frames, i64 %bytes, i32 %warp, i64 %offset, ptr @{name}.a, i32 %a_index)
  %b = call double @{name}.value(ptr %frames, i64 %bytes, i32 %warp, i64 %offset, ptr @{name}.b, i32 %b_index)
  %sum1 = call double @llvm.fma.f64(double %a, double %b, double %sum)
  %k1 = add i32 %k, 1
  %more_k = icmp ult i32 %k1, {fragments.depth}
  br i1 %more_k, label %step, label %written
written:
{back}  store {total} {last}, ptr %own_position, align 4
  %r1 = add i32 %r, 1
  %more = icmp ult i32 %r1, {count}
  br i1 %more, label %result, label %exit
exit:
  ret void
}}
define internal ptr @{name}.at(ptr %frames, i64 %bytes, i32 %warp, i32 %lane, i64 %offset, i32 %byte) nounwind {{
  %thread = add i32 %warp, %lane
  %number = zext i32 %thread to i64
  %frame = mul i64 %number, %bytes
  %laid = add i64 %frame, %offset
  %more = zext i32 %byte to i64
  %all = add i64 %laid, %more
  %position = getelementptr i8, ptr %frames, i64 %all
  ret ptr %position
}}
define internal double @{name}.value(ptr %frames, i64 %bytes, i32 %warp, i64 %offset, ptr %table, i32 %index) nounwind {{
  %entry = getelementptr i32, ptr %table, i32 %index
  %pair = load i32, ptr %entry
  %lane = lshr i32 %pair, 16
  %byte = and i32 %pair, 65535
  %position = call ptr @{name}.at(ptr %frames, i64 %bytes, i32 %warp, i32 %lane, i64 %offset, i32 %byte)
{_AS_DOUBLE[kind]}  ret double %value
}}""",
    ]


_AS_TOTAL = {  # its type, what it is in float64, and back; sums of 32 products of bytes are exact there
    "f64": ("double", "", ""),
    "f32": (
        "float", "  %start = fpext float %own to double\n", "  %rounded = fptrunc double %sum1 to float\n",
    ),
    "s32": (
        "i32", "  %start = sitofp i32 %own to double\n",
        "  %whole = fptosi double %sum1 to i64\n  %rounded = trunc i64 %whole to i32\n",
    ),
}  # fmt: skip
_AS_DOUBLE = {
    "s8": "  %byte1 = load i8, ptr %position\n  %value = sitofp i8 %byte1 to double\n",
    "u8": "  %byte1 = load i8, ptr %position\n  %value = uitofp i8 %byte1 to double\n",
    "f16": "  %half = load half, ptr %position\n  %value = fpext half %half to double\n",
    "bf16": (
        "  %half = load i16, ptr %position\n  %wide = zext i16 %half to i32\n  %bits = shl i32 %wide, 16\n"
        "  %float = bitcast i32 %bits to float\n  %value = fpext float %float to double\n"
    ),
    "tf32": (  # PTX ISA: the lower 13 bits are not looked at
        "  %word = load i32, ptr %position\n  %bits = and i32 %word, -8192\n"
        "  %float = bitcast i32 %bits to float\n  %value = fpext float %float to double\n"
    ),
    "f64": "  %value = load double, ptr %position, align 4\n",
}


def _load_matrices(f: Function, ins: Instruction) -> None:
    """Each lane gives the address of a row; every lane gets two neighbours of each matrix."""
    count = int(next(part for part in ins.parts if part in ("x1", "x2", "x4"))[1:])
    address = check_shared(f, ins, ins.operands[1], 16, 8 * count)
    offset = lay_down(f, [f.resized(address, 64, 32), f.resized(f.let(f"lshr i64 {address}, 32"), 64, 32)])  # fmt: skip
    lane = f.let(f"and i32 %tid, {WARP - 1}")
    group, position = f.let(f"lshr i32 {lane}, 2"), f.let(f"and i32 {lane}, 3")
    for k, register in enumerate(listed(ins.operands[0])):
        if "trans" in ins.parts:
            halves = []
            for j in range(2):
                row = f.let(f"add i32 {f.let(f'shl i32 {position}, 1')}, {8 * k + j}")
                at = _row(f, row, offset, f.let(f"shl i32 {group}, 1"))
                halves.append(f.resized(f.let(f"load i16, ptr {at}"), 16, 32))
            high = f.let(f"shl i32 {halves[1]}, 16")
            word = f.let(f"or i32 {halves[0]}, {high}")
        else:
            row = f.let(f"add i32 {group}, {8 * k}")
            word = f.let(f"load i32, ptr {_row(f, row, offset, f.let(f'shl i32 {position}, 2'))}")
        f.write(register, word, "b32")
    taken_up(f)


def _row(f: Function, lane: str, offset: int, byte: str) -> str:
    """A pointer to a byte of the row whose address a lane has laid down."""
    low, high = word_of(f, lane, offset), word_of(f, lane, offset + 4)
    top = f.let(f"shl i64 {f.resized(high, 32, 64)}, 32")
    address = f.let(f"or i64 {top}, {f.resized(low, 32, 64)}")
    return f.let(f"inttoptr i64 {f.let(f'add i64 {address}, {f.resized(byte, 32, 64)}')} to ptr")


MATRICES = {
    "mma": Operation(
        _multiply, frozenset({"sync", "aligned", "row", "col", *[shape for shape, _ in SHAPES]})
    ),
    "ldmatrix": Operation(
        _load_matrices,
        frozenset({"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"}),
    ),
}
