"""The PTX emulator: single instructions, exchange between threads, faults, and what it refuses."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from emulated_kernels import HEAD, entry, launch
from linear_kernels import differences, edge_values, operand_rows, ops_by_operands

from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emit import PTX_VERSIONS, ptx_of_llvm
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.emulator.grid import KernelFault
from proofgrad.backends.ptx.emulator.module import compiled
from proofgrad.backends.ptx.emulator.parse import Refused, parse
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops

SMALL_FLOATS = [dtypes.float16, dtypes.bfloat16]
ARITHMETIC = [d for d in dtypes.all if d not in SMALL_FLOATS]


@pytest.fixture(scope="module")
def device() -> PTXBackend:
    return PTXBackend(Driver(EmulatedDriver()))


# -- the text that is printed for kernels, against the meaning of each operation ------------------------


@pytest.mark.parametrize("dtype", ARITHMETIC, ids=lambda d: d.name)
def test_every_op_on_edge_values_is_bitwise_the_reference(device: PTXBackend, dtype: DType) -> None:
    wrong = []
    for sources, results in ops_by_operands(dtype).items():
        wrong += differences(device, results, sources, operand_rows(sources))
    assert wrong[:5] == []


@pytest.mark.parametrize("architecture", PTX_VERSIONS)
def test_every_op_on_float32_is_the_same_for_each_architecture(architecture: int) -> None:
    machine = PTXBackend(Driver(EmulatedDriver(capability=architecture)))
    for sources, results in ops_by_operands(dtypes.float32).items():
        assert differences(machine, results, sources, operand_rows(sources))[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_cast_of_edge_values_is_bitwise_the_reference(device: PTXBackend, dtype: DType) -> None:
    rows = [(value,) for value in edge_values(dtype)]
    casts = [(Ops.CAST, target) for target in dtypes.all]
    assert differences(device, casts, (dtype,), rows)[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_bitcast_keeps_the_bits(device: PTXBackend, dtype: DType) -> None:
    rows = [(value,) for value in edge_values(dtype) if not math.isnan(value)]
    targets = [(Ops.BITCAST, d) for d in dtypes.all if d.bits == dtype.bits and d is not dtype]
    assert differences(device, targets, (dtype,), rows) == []


@pytest.mark.parametrize("op", [Ops.SHL, Ops.SHR], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint64], ids=lambda d: d.name)
def test_shift_by_two_to_the_32_and_more_leaves_nothing(
    device: PTXBackend, dtype: DType, op: Ops
) -> None:
    """LLVM drops the upper half of the amount, behind its own comparison."""
    amounts = [2**32, 2**32 + 1, 2**33 + 63, 2**40, 2**62 + 5, 63, 64]
    rows = list(itertools.product([1, 2**62, 12345], amounts))
    assert differences(device, [(op, dtype)], (dtype, dtype), rows) == []


# -- instructions by hand -----------------------------------------------------------------------------


def of_two_words(text: str, first: int, second: int = 0) -> int:
    """A 32-bit result of an instruction on %x and %y, into %z."""
    data, out = np.array([first, second], np.uint32), np.zeros(1, np.uint32)
    body = (
        f"ld.global.u32 %x, [%a1];\nld.global.u32 %y, [%a1+4];\n{text};\nst.global.u32 [%a0], %z;"
    )
    launch(entry(2, ".reg .b32 %x, %y, %z;\n.reg .pred %p;", body), 1, 1, out, data)
    return int(out[0])


@pytest.mark.parametrize(
    ("text", "first", "second", "expected"),
    [
        ("shl.b32 %z, %x, %y", 5, 40, 0),
        ("shr.s32 %z, %x, %y", 0x80000000, 99, 0xFFFFFFFF),
        ("copysign.f32 %z, %x, %y", 0x80000001, 0x7FC00003, 0xFFC00003),
        ("copysign.f32 %z, %x, %y", 0x3F800000, 0xC0490FDB, 0x40490FDB),
        ("shf.l.wrap.b32 %z, %x, %y, 8", 0x11223344, 0xAABBCCDD, 0xBBCCDD11),
        ("shf.r.clamp.b32 %z, %x, %y, 40", 0x11223344, 0xAABBCCDD, 0xAABBCCDD),
        ("bfe.u32 %z, %x, 4, 8", 0xABCD1234, 0, 0x23),
        ("bfe.s32 %z, %x, 4, 8", 0x00000F80, 0, 0xFFFFFFF8),
        ("bfe.u32 %z, %x, 0, 0", 0xABCD1234, 0, 0),
        ("bfi.b32 %z, %x, %y, 8, 8", 0xABCD1234, 0xFFFFFFFF, 0xFFFF34FF),
        ("bfi.b32 %z, %x, %y, 28, 8", 0xABCD1234, 0, 0x40000000),
        ("bfi.b32 %z, %x, %y, 4, 0", 0xABCD1234, 0x55, 0x55),
        ("bfi.b32 %z, %x, %y, 0, 32", 0xABCD1234, 0x55, 0xABCD1234),
        ("bfi.b32 %z, %x, %y, 32, 8", 0xABCD1234, 0x55, 0x55),
        ("prmt.b32 %z, %x, %y, 0x7531", 0x44332211, 0x88776655, 0x88664422),
        ("prmt.b32 %z, %x, %y, 0x8888", 0x000000FF, 0, 0xFFFFFFFF),
        ("popc.b32 %z, %x", 0xF0F0, 0, 8),
        ("clz.b32 %z, %x", 0, 0, 32),
        ("brev.b32 %z, %x", 1, 0, 0x80000000),
        ("lop3.b32 %z, %x, %y, 0, 0x6A", 0b1100, 0b1010, 0b1000),
        ("mul.hi.u32 %z, %x, %y", 0x80000000, 6, 3),
        ("mad.lo.s32 %z, %x, %y, 7", 3, 5, 22),
        ("min.f32 %z, %x, %y", 0x7FC00000, 0x3F800000, 0x3F800000),
        ("min.NaN.f32 %z, %x, %y", 0x7FC00000, 0x3F800000, 0x7FC00000),
        ("cvt.rzi.s32.f32 %z, %x", 0x7FC00000, 0, 0),
        ("cvt.rzi.u32.f32 %z, %x", 0xC0000000, 0, 0),
        ("cvt.rni.s32.f32 %z, %x", 0x40200000, 0, 2),
        ("cvt.rna.tf32.f32 %z, %x", 0x3F801000, 0, 0x3F802000),
        ("cvt.rna.tf32.f32 %z, %x", 0xBF800FFF, 0, 0xBF801FFF),
        ("cvt.rna.tf32.f32 %z, %x", 0x7F7FF000, 0, 0x7F800000),
        ("cvt.rna.tf32.f32 %z, %x", 0x7FFFFFFF, 0, 0x7FFFFFFF),
        ("add.f16x2 %z, %x, %y", 0x3C004000, 0x3C003C00, 0x40004200),
        ("setp.gt.u32 %p, %x, %y;\nselp.b32 %z, 1, 2, %p", 7, 3, 1),
        ("setp.lt.or.s32 %p, %x, %y, true;\nselp.b32 %z, 1, 2, %p", 7, 3, 1),
        ("setp.eq.u32 %p, %x, %y;\n@!%p mov.b32 %z, 9;\n@%p mov.b32 %z, 4", 1, 1, 4),
    ],
)  # fmt: skip
def test_instruction_gives_what_its_section_says(
    text: str, first: int, second: int, expected: int
) -> None:
    assert f"{of_two_words(text, first, second):#x}" == f"{expected:#x}"


def test_vectors_of_four_words_are_loaded_and_stored() -> None:
    source, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    body = (
        "shl.b32 %i, %t, 4;\ncvt.u64.u32 %o, %i;\nadd.s64 %o, %o, %a1;\n"
        "ld.global.nc.L1::no_allocate.v4.f32 {%f0, %f1, %f2, %f3}, [%o];\nsub.s64 %o, %o, %a1;\nadd.s64 %o, %o, %a0;\n"
        "st.global.v4.f32 [%o], {%f3, %f2, %f1, %f0};"
    )
    registers = ".reg .b32 %i;\n.reg .b64 %o;\n.reg .f32 %f<4>;"
    launch(entry(2, registers, body), 1, 2, out, source)
    assert out.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


def test_a_vector_that_begins_in_memory_is_loaded_where_it_ends_behind_it() -> None:
    source, out = np.arange(4, dtype=np.float32), np.zeros(3, np.float32)
    body = (
        "ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%a1];\nst.global.v2.f32 [%a0], {%f2, %f1};\n"
        "st.global.f32 [%a0+8], %f0;"
    )
    launch(entry(2, ".reg .f32 %f<4>;", body), 1, 1, out, source[:3])
    assert out.tolist() == [2, 1, 0]


def test_parameters_are_loaded_by_addresses_in_their_own_space() -> None:
    """LLVM loads the one parameter that a condition chooses, rather than both."""
    one, other, out = [np.full(4, value, np.uint32) for value in (11, 22, 0)]
    body = (
        "mov.b64 %low, p1;\nmov.b64 %high, p2;\nsetp.lt.u32 %p, %t, 3;\nselp.b64 %o, %low, %high, %p;\nld.param.b64 %o, [%o];\n"
        "ld.global.u32 %x, [%o];\nmul.wide.u32 %o, %t, 4;\nadd.s64 %o, %o, %a0;\nst.global.u32 [%o], %x;\n"
        "mov.b64 %o, p0;\nld.param.b64 %high, [%o+16];\nsetp.eq.b64 %p, %high, %a2;\n@!%p trap;"
    )
    registers = ".reg .b64 %low;\n.reg .b64 %high;\n.reg .b64 %o;\n.reg .b32 %x;\n.reg .pred %p;"
    launch(entry(3, registers, body), 1, 4, out, one, other)
    assert out.tolist() == [11, 11, 11, 22]


def test_address_behind_the_parameters_ends_the_launch() -> None:
    text = entry(1, ".reg .b64 %o;", "mov.b64 %o, p0;\nld.param.b64 %o, [%o+4096];")
    with pytest.raises(KernelFault, match="8 bytes at") as caught:
        launch(text, 1, 1, np.zeros(1, np.uint32))
    assert caught.value.code == "CUDA_ERROR_ILLEGAL_ADDRESS"


def test_registers_of_an_inner_scope_are_its_own() -> None:
    out = np.zeros(1, np.uint32)
    body = (
        "mov.b32 %x, 7;\n{ .reg .b32 %x; mov.b32 %x, 1; }\n{ .reg .b16 tmp; mov.b32 {tmp, %h}, %x; }\n"
        "st.global.u32 [%a0], %x;"
    )
    launch(entry(1, ".reg .b32 %x;\n.reg .b16 %h;", body), 1, 1, out)
    assert out.tolist() == [7]


def test_blocks_and_threads_have_three_dimensions() -> None:
    out = np.zeros(2 * 3 * 2 * 4 * 2, np.uint32)
    names = ("%ctaid.z", "%ctaid.y", "%ctaid.x", "%tid.z", "%tid.y", "%tid.x")
    sizes = (2, 3, 2, 1, 2, 4)
    lines = ["mov.b32 %i, 0;"]
    for name, size in zip(names, sizes):
        lines += [f"mov.u32 %x, {name};", f"mad.lo.u32 %i, %i, {size}, %x;"]
    lines += ["mul.wide.u32 %o, %i, 4;", "add.u64 %o, %o, %a0;", "add.u32 %i, %i, 1;", "st.global.u32 [%o], %i;"]  # fmt: skip
    text = entry(1, ".reg .b32 %i, %x;\n.reg .b64 %o;", "\n".join(lines))
    launch(text, (2, 3, 2), (4, 2, 1), out)
    assert out.tolist() == list(range(1, 97))


def test_atomic_additions_of_all_threads_arrive() -> None:
    out = np.zeros(2, np.float32)
    body = "red.global.add.f32 [%a0], 0f3F800000;\natom.global.max.s32 %x, [%a0+4], %t;"
    launch(entry(1, ".reg .b32 %x;", body), 5, 64, out)
    assert (out[0], out.view(np.int32)[1]) == (320, 63)


# -- threads that meet ------------------------------------------------------------------------------


def sum_of_blocks(barrier: str = "bar.sync 0;") -> str:
    """out[block] = the sum of 128 elements: shuffles in each warp, then four words of shared memory."""
    lines = ["mov.u32 %c, %ctaid.x;", "mad.lo.u32 %i, %c, 128, %t;", "mul.wide.u32 %o, %i, 4;"]
    lines += ["add.u64 %o, %o, %a1;", "ld.global.f32 %f, [%o];"]
    for distance in (16, 8, 4, 2, 1):
        lines += [f"shfl.sync.bfly.b32 %g, %f, {distance}, 31, -1;", "add.rn.f32 %f, %f, %g;"]
    lines += ["shr.u32 %w, %t, 5;", "shl.b32 %w, %w, 2;", "mov.u32 %s, part;", "add.u32 %s, %s, %w;"]  # fmt: skip
    lines += ["cvt.u64.u32 %o, %s;", "st.shared.f32 [%o], %f;", barrier, "mov.f32 %f, 0f00000000;"]
    for k in range(4):
        lines += [f"ld.shared.f32 %g, [part+{4 * k}];", "add.rn.f32 %f, %f, %g;"]
    lines += ["setp.ne.u32 %p, %t, 0;", "@%p bra done;", "mul.wide.u32 %o, %c, 4;"]
    lines += ["add.u64 %o, %o, %a0;", "st.global.f32 [%o], %f;", "done:"]
    registers = ".reg .b32 %c, %i, %w, %s;\n.reg .b64 %o;\n.reg .f32 %f, %g;\n.reg .pred %p;"
    return entry(2, registers, "\n".join(lines), ".shared .align 4 .b8 part[16];")


@pytest.mark.parametrize("backwards", [False, True])
def test_sum_by_shuffles_and_shared_memory_is_that_of_each_block(backwards: bool) -> None:
    data, out = np.arange(512, dtype=np.float32), np.zeros(4, np.float32)
    launch(sum_of_blocks(), 4, 128, out, data, backwards=backwards)
    assert out.tolist() == data.reshape(4, 128).sum(1).tolist()


def test_sum_without_its_barrier_is_wrong() -> None:
    data, out = np.arange(512, dtype=np.float32), np.zeros(4, np.float32)
    launch(sum_of_blocks(barrier=""), 4, 128, out, data)
    assert (out != data.reshape(4, 128).sum(1)).any()


def shuffled(text: str) -> list[int]:
    """Of 32 lanes, each with its number plus 100, what `text` puts into %y from %x."""
    out = np.zeros(32, np.uint32)
    body = f"add.u32 %x, %t, 100;\nmov.u32 %y, 0;\n{text}\nmul.wide.u32 %o, %t, 4;\nadd.u64 %o, %o, %a0;\nst.global.u32 [%o], %y;"
    launch(entry(1, ".reg .b32 %x, %y;\n.reg .b64 %o;\n.reg .pred %p;", body), 1, 32, out)
    return [int(n) for n in out]


LANES = range(32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shfl.sync.idx.b32 %y, %x, 3, 31, -1;", [103] * 32),
        ("shfl.sync.up.b32 %y, %x, 4, 0, -1;", [100 + max(k - 4, k % 4 if k < 4 else 0) for k in LANES]),
        ("shfl.sync.down.b32 %y, %x, 30, 31, 0xffffffff;", [130, 131, *range(102, 132)]),
        ("shfl.sync.bfly.b32 %y, %x, 1, 31, -1;", [100 + (k ^ 1) for k in LANES]),
        ("shfl.sync.idx.b32 %y, %x, 1, 0x181f, -1;", [100 + (k & ~7) + 1 for k in LANES]),
        ("setp.lt.u32 %p, %t, 3;\nvote.sync.ballot.b32 %y, %p, -1;", [7] * 32),
        ("setp.lt.u32 %p, %t, 3;\nvote.sync.any.pred %p, %p, -1;\n@%p mov.b32 %y, 5;", [5] * 32),
        ("redux.sync.add.u32 %y, %t, -1;", [496] * 32),
        ("redux.sync.max.s32 %y, %t, -1;", [31] * 32),
    ],
)  # fmt: skip
def test_lanes_exchange_words(text: str, expected: list[int]) -> None:
    assert shuffled(text) == expected


def test_shuffle_in_a_loop_never_reads_the_next_round() -> None:
    text = (
        "mov.b32 %i, 0;\nagain:\nshfl.sync.down.b32 %z, %x, 1, 31, -1;\nadd.u32 %x, %z, 1;\n"
        "add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 3;\n@%p bra again;\nmov.b32 %y, %x;"
    )
    out = np.zeros(32, np.uint32)
    body = f"mov.u32 %x, %t;\n{text}\nmul.wide.u32 %o, %t, 4;\nadd.u64 %o, %o, %a0;\nst.global.u32 [%o], %y;"
    launch(entry(1, ".reg .b32 %x, %y, %z, %i;\n.reg .b64 %o;\n.reg .pred %p;", body), 1, 32, out)
    values = list(LANES)
    for _ in range(3):
        values = [values[min(k + 1, 31)] + 1 for k in LANES]
    assert out.tolist() == values


def copies(wait: str) -> str:
    """out = source, through shared memory and a copy that goes on by itself."""
    lines = ["mul.wide.u32 %o, %t, 16;", "add.u64 %g, %o, %a1;", "mov.u64 %s, room;", "add.u64 %s, %s, %o;"]  # fmt: skip
    lines += ["cp.async.cg.shared.global [%s], [%g], 16;", "cp.async.commit_group;", wait]
    lines += ["ld.shared.v4.b32 {%x, %y, %z, %w}, [%s];", "add.u64 %g, %o, %a0;", "st.global.v4.b32 [%g], {%x, %y, %z, %w};"]  # fmt: skip
    return entry(2, ".reg .b32 %x, %y, %z, %w;\n.reg .b64 %o, %g, %s;", "\n".join(lines), ".shared .align 16 .b8 room[512];")  # fmt: skip


@pytest.mark.parametrize(
    ("wait", "arrives"),
    [
        ("cp.async.wait_group 0;", True),
        ("cp.async.wait_all;", True),
        ("cp.async.wait_group 1;", False),
        ("", False),
    ],
)
def test_copy_has_arrived_when_it_was_waited_for(wait: str, arrives: bool) -> None:
    source, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    launch(copies(wait), 1, 32, out, source)
    assert bool((out == source).all()) is arrives


def test_copy_of_fewer_bytes_is_filled_with_zeros() -> None:
    source, out = np.arange(1, 129, dtype=np.uint32), np.zeros(128, np.uint32)
    launch(copies("cp.async.wait_all;").replace("], 16;", "], 16, 8;"), 1, 32, out, source)
    assert out[:8].tolist() == [1, 2, 0, 0, 5, 6, 0, 0]


# -- products of fragments --------------------------------------------------------------------------

# Row and column of element `i` of a lane, as PTX ISA writes them for each shape.
Layout = Callable[[int, int, int], tuple[int, int]]
LAYOUTS: dict[str, tuple[tuple[int, Layout], tuple[int, Layout], tuple[int, Layout]]] = {
    "m16n8k16": (
        (8, lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0))),
        (4, lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g)),
        (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
    ),
    "m16n8k8": (
        (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
        (2, lambda g, t, i: (t * 2 + i, g)),
        (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
    ),
    "m16n8k8.tf32": (
        (4, lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4)),
        (2, lambda g, t, i: (t if i == 0 else t + 4, g)),
        (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
    ),
    "m16n8k4.tf32": (
        (2, lambda g, t, i: (g if i == 0 else g + 8, t)),
        (1, lambda g, t, i: (t, g)),
        (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
    ),
    "m16n8k32": (
        (16, lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0))),
        (8, lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g)),
        (4, lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1))),
    ),
    "m8n8k4": (
        (1, lambda g, t, i: (g, t)),
        (1, lambda g, t, i: (t, g)),
        (2, lambda g, t, i: (g, t * 2 + i)),
    ),
}  # fmt: skip


TOTALS = {"f64": "f64", "s8": "s32", "u8": "s32"}


def fragments_in_order(matrix: np.ndarray, count: int, layout: Layout) -> np.ndarray:
    """The elements of a matrix as lanes hold them, one lane after the other."""
    positions = [layout(lane // 4, lane % 4, i) for lane in range(32) for i in range(count)]
    return np.ascontiguousarray([matrix[row, column] for row, column in positions])


def product_kernel(name: str, kind: str, counts: tuple[int, int, int], bytes_a: int) -> str:
    """Each lane reads its elements of A, B and C, which lie in a row, and writes those of D."""
    lines, lists = [], []
    each = 4 if bytes_a < 8 else 8  # bytes of a register
    for k, count in enumerate(counts):
        nbytes = count * (bytes_a if k < 2 else max(4, min(8, each)))
        registers = [f"%m{k}x{j}" for j in range(max(1, nbytes // each))]
        lists.append("{" + ", ".join(registers) + "}")
        pointer = f"%a{k + 1}" if k < 2 else "%a0"
        lines += [
            f"mul.lo.u32 %x, %t, {nbytes};",
            "cvt.u64.u32 %o, %x;",
            f"add.u64 %o, %o, {pointer};",
        ]
        lines += [
            f"ld.global.b{8 * each} {one}, [%o+{each * j}];" for j, one in enumerate(registers)
        ]
    total = TOTALS.get(kind, "f32")
    lines.append(
        f"mma.sync.aligned.{name}.row.col.{total}.{kind}.{kind}.{total} {lists[2]}, {lists[0]}, {lists[1]}, {lists[2]};"
    )
    lines += [
        f"st.global.b{8 * each} [%o+{each * j}], {one};"
        for j, one in enumerate(lists[2][1:-1].split(", "))
    ]
    registers = f".reg .b32 %x;\n.reg .b64 %o;\n.reg .b{8 * each} %m0x<8>, %m1x<8>, %m2x<8>;"
    return entry(3, registers, "\n".join(lines))  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("m16n8k16", "f16"), ("m16n8k16", "bf16"), ("m16n8k8", "f16"), ("m16n8k8", "bf16"),
     ("m16n8k8", "tf32"), ("m16n8k4", "tf32"), ("m8n8k4", "f64"), ("m16n8k32", "s8"), ("m16n8k32", "u8")],
)  # fmt: skip
def test_product_of_fragments_is_the_product_of_the_matrices(shape: str, kind: str) -> None:
    layouts = LAYOUTS[f"{shape}.tf32" if kind == "tf32" else shape]
    rows, columns, depth = [int(n) for n in re.findall(r"\d+", shape)]
    random = np.random.default_rng(0)
    low, high, unit = {"s8": (-128, 128, 1), "u8": (0, 256, 1)}.get(kind, (-8, 8, 4))
    a, b = [random.integers(low, high, s) / unit for s in ((rows, depth), (depth, columns))]
    total = {"f64": np.float64, "s32": np.int32, "f32": np.float32}[TOTALS.get(kind, "f32")]
    c = random.integers(-8, 8, (rows, columns)).astype(total)
    laid = [fragments_in_order(m, *layout) for m, layout in zip((a, b, c), layouts)]
    if kind == "bf16":
        given = [(m.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for m in laid[:2]]
    else:
        given = [m.astype({"f16": np.float16, "tf32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8}[kind]) for m in laid[:2]]  # fmt: skip
    result = laid[2].astype(total)
    counts = (layouts[0][0], layouts[1][0], layouts[2][0])
    launch(product_kernel(shape, kind, counts, given[0].itemsize), 1, 32, result, *given)
    assert (result == fragments_in_order(a @ b + c, *layouts[2])).all()


def test_matrices_are_loaded_as_their_products_want_them() -> None:
    """Rows of 16-bit numbers in shared memory; each lane gets two neighbours of each of four matrices."""
    source, out = np.arange(256, dtype=np.uint16), np.zeros(256, np.uint16)
    lines = [
        "mul.wide.u32 %o, %t, 16;",
        "add.u64 %g, %o, %a1;",
        "mov.u64 %s, room;",
        "add.u64 %s, %s, %o;",
    ]
    lines += [
        "ld.global.v4.b32 {%x, %y, %z, %w}, [%g];",
        "st.shared.v4.b32 [%s], {%x, %y, %z, %w};",
        "bar.sync 0;",
    ]
    lines += ["ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%x, %y, %z, %w}, [%s];"]
    lines += ["add.u64 %g, %o, %a0;", "st.global.v4.b32 [%g], {%x, %y, %z, %w};"]
    text = entry(
        2,
        ".reg .b32 %x, %y, %z, %w;\n.reg .b64 %o, %g, %s;",
        "\n".join(lines),
        ".shared .align 16 .b8 room[512];",
    )
    launch(text, 1, 32, out, source)
    matrices = source.reshape(4, 8, 8)
    expected = [
        matrices[m, lane // 4, 2 * (lane % 4) + j]
        for lane in range(32)
        for m in range(4)
        for j in range(2)
    ]
    assert out.tolist() == expected
    launch(text.replace(".x4.", ".x4.trans."), 1, 32, out, source)
    expected = [
        matrices[m, 2 * (lane % 4) + j, lane // 4]
        for lane in range(32)
        for m in range(4)
        for j in range(2)
    ]
    assert out.tolist() == expected  # fmt: skip


# -- faults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("st.global.u32 [%a0+4], %t;", "ILLEGAL_ADDRESS", "line 15 of its PTX: 4 bytes at"),
        ("ld.global.u32 %x, [%a0+-4];", "ILLEGAL_ADDRESS", "are no memory of what it was given"),
        ("ld.global.v2.u32 {%x, %x}, [%a0+8];", "ILLEGAL_ADDRESS", "8 bytes at"),
        ("st.global.v2.u32 [%a0], {%t, %t};", "ILLEGAL_ADDRESS", "8 bytes at"),
        ("st.global.u32 [%a0+2], %t;", "MISALIGNED_ADDRESS", "which is no multiple of 4"),
        ("ld.shared.u32 %x, [room+16];", "ILLEGAL_ADDRESS", "4 bytes at"),
        ("trap;", "LAUNCH_FAILED", "a trap"),
        ("setp.eq.u32 %p, %t, 0;\n@%p bar.sync 0;\n@!%p bar.sync 0;", "LAUNCH_TIMEOUT", "wait in lines 16 and 17"),
        ("setp.lt.u32 %p, %t, 32;\n@%p bar.sync 0;\n@!%p bar.sync 0;", "LAUNCH_TIMEOUT", "barriers in lines 16 and 17"),
        ("setp.eq.u32 %p, %t, 0;\n@%p ret;\nshfl.sync.idx.b32 %x, %x, 0, 31, -1;", "LAUNCH_TIMEOUT", "others that have ended"),
    ],
)  # fmt: skip
def test_what_a_gpu_would_refuse_ends_the_launch(body: str, code: str, message: str) -> None:
    text = entry(1, ".reg .b32 %x;\n.reg .pred %p;", body, ".shared .align 4 .b8 room[16];")
    with pytest.raises(KernelFault, match=message) as caught:
        launch(text, 1, 64, np.zeros(1, np.uint32))
    assert caught.value.code == f"CUDA_ERROR_{code}"


def test_barrier_for_those_that_have_not_ended_is_none_for_the_others() -> None:
    out = np.zeros(1, np.uint32)
    body = "setp.ge.u32 %p, %t, 40;\n@%p ret;\nbar.sync 0;\natom.global.add.u32 %x, [%a0], 1;"
    launch(entry(1, ".reg .b32 %x;\n.reg .pred %p;", body), 1, 64, out)
    assert out.tolist() == [40]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sin.approx.f32 %f, %f;", r"line 15: 'sin.approx.f32 %f, %f' is not emulated"),
        ("add.rn.ftz.f32 %f, %f, %f;", r"line 15: .*what .ftz means there is not known"),
        ("add.sat.f32 %f, %f, %f;", r"what .sat means there is not known"),
        ("div.full.f32 %f, %f, %f;", r"what .full means"),
        ("bar.sync 0, 32;", r"only barriers of all threads"),
        ("shfl.sync.idx.b32 %x, %x, 0, 31, 15;", r"only all lanes of a warp"),
        ("mov.u32 %x, %clock;", r"the operand %clock"),
        ("fma.rz.f32 %f, %f, %f, %f;", r"what .rz means"),
        ("call f, (%x);", r"line 15: 'call"),
    ],
)
def test_unknown_instruction_is_refused_with_its_line(body: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        compiled(entry(1, ".reg .b32 %x;\n.reg .f32 %f;", body))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "'nonsense' has no end"),
        (".version 7.0\n.target sm_70\n.address_size 32\n", "addresses of 32 bits"),
        (f"{HEAD}.visible .func f() {{ ret; }}", "is not emulated"),
        (f"{HEAD}.visible .entry k() {{ ret;", "ends inside of braces"),
        (f"{HEAD}.visible .entry k() .cluster 2 {{ ret; }}", "the directive .cluster"),
    ],
)
def test_text_that_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        parse(text)


def test_what_llvm_prints_of_intrinsics_is_emulated() -> None:
    """Its own spelling of shuffles, barriers, copies and matrix products."""
    ir = """
define ptx_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) readonly align 16 %a) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr float, ptr addrspace(1) %a, i32 %t
  %x = load float, ptr addrspace(1) %p
  %q = getelementptr [32 x float], ptr addrspace(3) @s, i32 0, i32 %t
  store float %x, ptr addrspace(3) %q
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %m = xor i32 %t, 31
  %r = getelementptr [32 x float], ptr addrspace(3) @s, i32 0, i32 %m
  %y = load float, ptr addrspace(3) %r
  %z = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %y, i32 1, i32 31)
  %o = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %z, ptr addrspace(1) %o
  ret void
}
@s = internal addrspace(3) global [32 x float] undef, align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
"""
    data, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    launch(ptx_of_llvm(ir, 90), 1, 32, out, data)
    assert out.tolist() == [31 - (k ^ 1) for k in range(32)]
