"""What an instruction on registers does: arithmetic, comparisons, choices, bits.

Owns: those of PTX that LLVM prints for kernels. Does not own: conversions (convert.py), memory (access.py).

Source: PTX ISA, "Instruction Set", one section an instruction: shifts clamp their amount, `min` and `max` drop a NaN unless
.NaN is said, a division by zero gives some value.
"""

from __future__ import annotations

from collections.abc import Callable

from proofgrad.backends.ptx.emulator.function import FLOAT, Function, Operation
from proofgrad.backends.ptx.emulator.parse import WIDTH, Instruction, Refused, listed

COMPARISONS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une",
    "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip
UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
_Two = Callable[[Function, str, str, str], str]


def _type(ins: Instruction) -> str:
    kind = ins.parts[-1]
    if kind not in WIDTH:
        raise Refused("it has no type")
    return kind


def _llvm(kind: str) -> str:
    return FLOAT.get(kind, f"i{WIDTH[kind]}")


def _lanes(f: Function, ins: Instruction, make: Callable[[list[str], str], str]) -> None:
    """`make(operands, type)` of the operands behind the result; of both halves of a packed type."""
    kind = _type(ins)
    target, *operands = ins.operands
    if kind not in PACKED:
        f.write(target, make([f.value(one, kind) for one in operands], kind), kind)
        return
    part, total = PACKED[kind], "0"
    words = [f.read(one, 32) for one in operands]
    for shift in (0, 16):
        halves = []
        for word in words:
            half = f.let(f"trunc i32 {f.let(f'lshr i32 {word}, {shift}')} to i16")
            halves.append(f.let(f"bitcast i16 {half} to {FLOAT[part]}"))
        bits = f.let(f"bitcast {FLOAT[part]} {make(halves, part)} to i16")
        wide = f.let(f"zext i16 {bits} to i32")
        total = f.let(f"or i32 {total}, {f.let(f'shl i32 {wide}, {shift}')}")
    f.write(target, total, "b32")


def _binary(integer: str, float_: str = "") -> Callable[[Function, Instruction], None]:
    """An instruction that LLVM has under these names; `sub` and `fsub`."""

    def write(f: Function, ins: Instruction) -> None:
        def make(values: list[str], kind: str) -> str:
            name = float_ if kind in FLOAT else integer
            if not name:
                raise Refused("not on floats")
            return f.let(f"{name} {_llvm(kind)} {values[0]}, {values[1]}")

        _lanes(f, ins, make)

    return write


def _not(f: Function, ins: Instruction) -> None:
    _lanes(f, ins, lambda values, kind: f.let(f"xor {_llvm(kind)} {values[0]}, -1"))


def _neg(f: Function, ins: Instruction) -> None:
    def make(values: list[str], kind: str) -> str:
        text = f"fneg {_llvm(kind)}" if kind in FLOAT else f"sub {_llvm(kind)} 0,"
        return f.let(f"{text} {values[0]}")

    _lanes(f, ins, make)


def _abs(f: Function, ins: Instruction) -> None:
    def make(values: list[str], kind: str) -> str:
        llvm = _llvm(kind)
        if kind in FLOAT:
            return f.call(llvm, f"llvm.fabs.{kind}", (llvm, values[0]))
        return f.call(llvm, f"llvm.abs.{llvm}", (llvm, values[0]), ("i1", "false"))

    _lanes(f, ins, make)


def _copysign(f: Function, ins: Instruction) -> None:
    """The first operand has the sign, the second the size."""

    def make(values: list[str], kind: str) -> str:
        llvm = _llvm(kind)
        return f.call(llvm, f"llvm.copysign.{kind}", (llvm, values[1]), (llvm, values[0]))

    _lanes(f, ins, make)


def _extreme(f: Function, ins: Instruction) -> None:
    which = ins.parts[0]

    def make(values: list[str], kind: str) -> str:
        llvm = _llvm(kind)
        both = ((llvm, values[0]), (llvm, values[1]))
        if kind in FLOAT:
            name = f"{which}imum" if "NaN" in ins.parts else f"{which}imumnum"
            return f.call(llvm, f"llvm.{name}.{kind}", *both)
        return f.call(llvm, f"llvm.{kind[0]}{which}.{llvm}", *both)

    _lanes(f, ins, make)


def _function(name: str, form: str = "rn") -> Callable[[Function, Instruction], None]:
    """An instruction that is an intrinsic function of LLVM, correctly rounded; or of the form `approx`, as the host computes it."""

    def write(f: Function, ins: Instruction) -> None:
        if form not in ins.parts:
            raise Refused("only rounded to nearest" if form == "rn" else f"only {form}")

        def make(values: list[str], kind: str) -> str:
            llvm = _llvm(kind)
            return f.call(llvm, f"llvm.{name}.{kind}", *[(llvm, value) for value in values])

        _lanes(f, ins, make)

    return write


def _reciprocal(f: Function, ins: Instruction) -> None:
    if "rn" not in ins.parts:
        raise Refused("only rounded to nearest")
    _lanes(f, ins, lambda values, kind: f.let(f"fdiv {_llvm(kind)} 1.0, {values[0]}"))


# -- products ---------------------------------------------------------------------------------------


def _product(f: Function, ins: Instruction) -> tuple[str, str]:
    """The product of operands 1 and 2, and its type."""
    kind, part = _type(ins), ins.parts[1]
    width = WIDTH[kind]
    if part == "lo":
        first, second = f.value(ins.operands[1], kind), f.value(ins.operands[2], kind)
        return f.let(f"mul i{width} {first}, {second}"), kind
    wide = [
        f.resized(f.value(operand, kind), width, 2 * width, is_signed=kind[0] == "s")
        for operand in ins.operands[1:3]
    ]
    product = f.let(f"mul i{2 * width} {wide[0]}, {wide[1]}")
    if part == "wide":
        return product, f"{kind[0]}{2 * width}"
    if part != "hi":
        raise Refused("it says neither .lo, .hi nor .wide")
    return f.resized(f.let(f"lshr i{2 * width} {product}, {width}"), 2 * width, width), kind


def _mul(f: Function, ins: Instruction) -> None:
    kind = _type(ins)
    if kind in FLOAT or kind in PACKED:
        _binary("mul", "fmul")(f, ins)
        return
    value, kind = _product(f, ins)
    f.write(ins.operands[0], value, kind)


def _mad(f: Function, ins: Instruction) -> None:
    if _type(ins) in FLOAT:
        raise Refused("mad of floats; fma is meant")
    value, kind = _product(f, ins)
    total = f.let(f"add i{WIDTH[kind]} {value}, {f.read(ins.operands[3], WIDTH[kind])}")
    f.write(ins.operands[0], total, kind)


# -- division ---------------------------------------------------------------------------------------


def _div(f: Function, ins: Instruction) -> None:
    if _type(ins) not in FLOAT:
        _divide(f, ins, "div")
        return
    if "rn" not in ins.parts:
        raise Refused("only rounded to nearest")
    _binary("", "fdiv")(f, ins)


def _rem(f: Function, ins: Instruction) -> None:
    _divide(f, ins, "rem")


def _divide(f: Function, ins: Instruction, which: str) -> None:
    """By zero some value: here all ones, so that who counts on it is seen. The quotient that overflows wraps."""

    def make(values: list[str], kind: str) -> str:
        llvm, (x, y) = _llvm(kind), values
        by_zero = f.let(f"icmp eq {llvm} {y}, 0")
        unsafe = by_zero
        if kind[0] == "s":
            lowest = f.let(f"icmp eq {llvm} {x}, {-(1 << WIDTH[kind] - 1)}")
            minus = f.let(f"icmp eq {llvm} {y}, -1")
            unsafe = f.let(f"or i1 {by_zero}, {f.let(f'and i1 {lowest}, {minus}')}")
        divisor = f.let(f"select i1 {unsafe}, {llvm} 1, {llvm} {y}")
        result = f.let(f"{'s' if kind[0] == 's' else 'u'}{which} {llvm} {x}, {divisor}")
        if which == "rem" and kind[0] == "s":
            result = f.let(f"select i1 {unsafe}, {llvm} 0, {llvm} {result}")
        return f.let(f"select i1 {by_zero}, {llvm} -1, {llvm} {result}")

    _lanes(f, ins, make)


# -- bits -------------------------------------------------------------------------------------------


def _shift(f: Function, ins: Instruction) -> None:
    """The amount is 32 bits wide whatever the type, and clamped to the width."""
    kind = _type(ins)
    width = WIDTH[kind]
    operator = "shl" if ins.parts[0] == "shl" else "ashr" if kind[0] == "s" else "lshr"
    value, amount = f.read(ins.operands[1], width), f.read(ins.operands[2], 32)
    is_over = f.let(f"icmp uge i32 {amount}, {width}")
    bounded = f.let(f"select i1 {is_over}, i32 {width - 1}, i32 {amount}")
    shifted = f.let(f"{operator} i{width} {value}, {f.resized(bounded, 32, width)}")
    if operator != "ashr":
        shifted = f.let(f"select i1 {is_over}, i{width} 0, i{width} {shifted}")
    f.write(ins.operands[0], shifted, f"b{width}")


def _funnel(f: Function, ins: Instruction) -> None:
    low, high, amount = [f.read(operand, 32) for operand in ins.operands[1:4]]
    name = "llvm.fshl.i32" if "l" in ins.parts else "llvm.fshr.i32"
    shifted = f.call("i32", name, ("i32", high), ("i32", low), ("i32", amount))
    if "clamp" in ins.parts:
        is_over = f.let(f"icmp uge i32 {amount}, 32")
        end = low if "l" in ins.parts else high
        shifted = f.let(f"select i1 {is_over}, i32 {end}, i32 {shifted}")
    f.write(ins.operands[0], shifted, "b32")


def _extract_field(f: Function, ins: Instruction) -> None:
    """Bits from a position on, as an unsigned or signed number."""
    kind = _type(ins)
    width = WIDTH[kind]
    value = f.read(ins.operands[1], width)
    start, count = [f.let(f"and i32 {f.read(operand, 32)}, 255") for operand in ins.operands[2:4]]
    wide = f.resized(value, width, 2 * width, is_signed=kind[0] == "s")
    start = _least(f, start, width)
    count = _least(f, count, width)
    moved = f.let(f"ashr i{2 * width} {wide}, {f.resized(start, 32, 2 * width)}")
    rest = f.let(f"sub i32 {2 * width}, {count}")
    gone = f.let(f"icmp eq i32 {count}, 0")
    rest = f.resized(f.let(f"select i1 {gone}, i32 0, i32 {rest}"), 32, 2 * width)
    top = f.let(f"shl i{2 * width} {moved}, {rest}")
    back = f.let(f"{'ashr' if kind[0] == 's' else 'lshr'} i{2 * width} {top}, {rest}")
    field = f.resized(back, 2 * width, width)
    f.write(ins.operands[0], f.let(f"select i1 {gone}, i{width} 0, i{width} {field}"), kind)


def _insert_field(f: Function, ins: Instruction) -> None:
    """The second operand with bits of the first in the place of its own, from a position on."""
    width = WIDTH[_type(ins)]
    wide = 2 * width
    word = f"i{wide}"
    value, around = [f.resized(f.read(one, width), width, wide) for one in ins.operands[1:3]]
    bounds = [f.let(f"and i32 {f.read(operand, 32)}, 255") for operand in ins.operands[3:5]]
    start, count = [f.resized(_least(f, bound, width), 32, wide) for bound in bounds]
    ones = f.let(f"sub {word} {f.let(f'shl {word} 1, {count}')}, 1")
    field = f.let(f"shl {word} {ones}, {start}")
    inside = f.let(f"and {word} {f.let(f'shl {word} {value}, {start}')}, {field}")
    outside = f.let(f"and {word} {around}, {f.let(f'xor {word} {field}, -1')}")
    both = f.let(f"or {word} {inside}, {outside}")
    f.write(ins.operands[0], f.resized(both, wide, width), f"b{width}")


def _least(f: Function, value: str, most: int) -> str:
    return f.call("i32", "llvm.umin.i32", ("i32", value), ("i32", str(most)))


def _permute(f: Function, ins: Instruction) -> None:
    """Four bytes of the eight of two words, by a constant that names them."""
    if not ins.operands[3][0].isdigit():
        raise Refused("the selection is no constant")
    selection = int(ins.operands[3].rstrip("U"), 0)
    low, high = [f.resized(f.read(one, 32), 32, 64) for one in ins.operands[1:3]]
    both = f.let(f"or i64 {low}, {f.let(f'shl i64 {high}, 32')}")
    total = "0"
    for k in range(4):
        which = selection >> 4 * k & 15
        byte = f.resized(f.let(f"lshr i64 {both}, {8 * (which & 7)}"), 64, 8)
        byte = f.let(f"ashr i8 {byte}, 7") if which & 8 else byte
        position = f.let(f"shl i32 {f.resized(byte, 8, 32)}, {8 * k}")
        total = f.let(f"or i32 {total}, {position}")
    f.write(ins.operands[0], total, "b32")


def _count(name: str) -> Callable[[Function, Instruction], None]:
    """An intrinsic that counts bits; the result is 32 bits wide."""

    def write(f: Function, ins: Instruction) -> None:
        width = WIDTH[_type(ins)]
        more = () if name == "ctpop" else (("i1", "false"),)
        value = f.read(ins.operands[1], width)
        found = f.call(f"i{width}", f"llvm.{name}.i{width}", (f"i{width}", value), *more)
        f.write(ins.operands[0], f.resized(found, width, 32), "b32")

    return write


def _reverse(f: Function, ins: Instruction) -> None:
    width = WIDTH[_type(ins)]
    value = f.read(ins.operands[1], width)
    found = f.call(f"i{width}", f"llvm.bitreverse.i{width}", (f"i{width}", value))
    f.write(ins.operands[0], found, f"b{width}")


def _logic(f: Function, ins: Instruction) -> None:
    """Any function of three bits, as a table of eight."""
    words = [f.read(operand, 32) for operand in ins.operands[1:4]]
    table, total = int(ins.operands[4], 0), "0"
    for row in range(8):
        if table >> row & 1:
            term = "-1"
            for k, word in enumerate(words):
                bit = word if row >> (2 - k) & 1 else f.let(f"xor i32 {word}, -1")
                term = f.let(f"and i32 {term}, {bit}")
            total = f.let(f"or i32 {total}, {term}")
    f.write(ins.operands[0], total, "b32")


# -- choices ----------------------------------------------------------------------------------------


def _select(f: Function, ins: Instruction) -> None:
    width = WIDTH[_type(ins)]
    target, yes, no, truth = ins.operands
    both = f"i{width} {f.read(yes, width)}, i{width} {f.read(no, width)}"
    f.write(target, f.let(f"select i1 {f.read(truth, 1)}, {both}"), f"b{width}")


def _compare(f: Function, ins: Instruction) -> None:
    kind, code = _type(ins), ins.parts[1]
    first, second = f.value(ins.operands[1], kind), f.value(ins.operands[2], kind)
    if kind in FLOAT:
        truth = f.let(f"fcmp {COMPARISONS[code]} {_llvm(kind)} {first}, {second}")
    else:
        if code in ("eq", "ne"):
            name = code
        else:
            name = UNSIGNED.get(code) or ("s" if kind[0] == "s" else "u") + code
        truth = f.let(f"icmp {name} {_llvm(kind)} {first}, {second}")
    target, _, other = ins.operands[0].partition("|")
    if len(ins.operands) == 4:  # combined with another truth
        rest = f.read(ins.operands[3], 1)
        operator = ins.parts[2]
        if other or operator not in ("and", "or", "xor"):
            raise Refused("how it is combined is not known")
        truth = f.let(f"{operator} i1 {truth}, {rest}")
    f.write(target, truth, "pred")
    if other:
        f.write(other, f.let(f"xor i1 {truth}, true"), "pred")


def _move(f: Function, ins: Instruction) -> None:
    """A copy; also of a word into its parts, or of parts into a word."""
    width, (target, source) = WIDTH[_type(ins)], ins.operands
    if target.startswith("{"):
        parts, word = listed(target), f.read(source, width)
        each = width // len(parts)
        for k, part in enumerate(parts):
            moved = f.let(f"lshr i{width} {word}, {k * each}")
            f.write(part, f.resized(moved, width, each), f"b{each}")
    elif source.startswith("{"):
        parts, total = listed(source), "0"
        each = width // len(parts)
        for k, part in enumerate(parts):
            wide = f.resized(f.read(part, each), each, width)
            total = f.let(f"or i{width} {total}, {f.let(f'shl i{width} {wide}, {k * each}')}")
        f.write(target, total, f"b{width}")
    else:
        f.write(target, f.read(source, width), "pred" if width == 1 else f"b{width}")


_ROUNDED = frozenset({"rn"})
SCALAR = {
    "add": Operation(_binary("add", "fadd"), _ROUNDED),
    "sub": Operation(_binary("sub", "fsub"), _ROUNDED),
    "mul": Operation(_mul, frozenset({"rn", "lo", "hi", "wide"})),
    "mad": Operation(_mad, frozenset({"lo", "hi", "wide"})),
    "fma": Operation(_function("fma"), _ROUNDED),
    "sqrt": Operation(_function("sqrt"), _ROUNDED),
    "ex2": Operation(_function("exp2", "approx"), frozenset({"approx"})),
    "lg2": Operation(_function("log2", "approx"), frozenset({"approx"})),
    "rcp": Operation(_reciprocal, _ROUNDED),
    "div": Operation(_div, _ROUNDED),
    "rem": Operation(_rem),
    "neg": Operation(_neg),
    "abs": Operation(_abs),
    "copysign": Operation(_copysign),
    "min": Operation(_extreme, frozenset({"NaN"})),
    "max": Operation(_extreme, frozenset({"NaN"})),
    "and": Operation(_binary("and")),
    "or": Operation(_binary("or")),
    "xor": Operation(_binary("xor")),
    "not": Operation(_not),
    "shl": Operation(_shift),
    "shr": Operation(_shift),
    "shf": Operation(_funnel, frozenset({"l", "r", "wrap", "clamp"})),
    "bfe": Operation(_extract_field),
    "bfi": Operation(_insert_field),
    "prmt": Operation(_permute),
    "popc": Operation(_count("ctpop")),
    "clz": Operation(_count("ctlz")),
    "brev": Operation(_reverse),
    "lop3": Operation(_logic),
    "selp": Operation(_select),
    "setp": Operation(_compare, frozenset({*COMPARISONS, *UNSIGNED, "and", "or", "xor"})),
    "mov": Operation(_move),
}
