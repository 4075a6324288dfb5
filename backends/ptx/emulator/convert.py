"""Conversions between types, and between address spaces.

Owns: cvt, cvta. Does not own: other instructions on registers (scalar.py).

Source: PTX ISA, "cvt": a float becomes an integer within its bounds; a NaN becomes 0, or for float64 and 64-bit integers
the number with only its highest bit set.
"""

from __future__ import annotations

from proofgrad.backends.ptx.emulator.function import FLOAT, Function, Operation
from proofgrad.backends.ptx.emulator.parse import WIDTH, Instruction, Refused

_TO_WHOLE = {"rzi": "trunc", "rmi": "floor", "rpi": "ceil", "rni": "roundeven"}


def _convert(f: Function, ins: Instruction) -> None:
    *modifiers, to, source = ins.parts[1:]
    rounding = modifiers[0] if modifiers else ""
    if len(modifiers) > 1 or to not in WIDTH or source not in WIDTH:
        raise Refused("more than one modifier")
    if to in ("f16x2", "bf16x2") or to == "tf32":
        _packed_or_tf32(f, ins, to, source, rounding)
        return
    value = f.value(ins.operands[1], source)
    match to in FLOAT, source in FLOAT:
        case True, True:
            value = _between_floats(f, value, to, source, rounding)
        case True, False:
            if rounding != "rn":
                raise Refused("only rounded to nearest")
            kind = "sitofp" if source[0] == "s" else "uitofp"
            value = f.let(f"{kind} i{WIDTH[source]} {value} to {FLOAT[to]}")
        case False, True:
            value = _to_integer(f, value, to, source, rounding)
        case _:
            value = f.resized(value, WIDTH[source], WIDTH[to], is_signed=source[0] == "s")
    f.write(ins.operands[0], value, to)


def _between_floats(f: Function, value: str, to: str, source: str, rounding: str) -> str:
    if to == source:
        name = f"llvm.{_TO_WHOLE[rounding]}.{to}"
        return f.call(FLOAT[to], name, (FLOAT[to], value))
    if WIDTH[to] > WIDTH[source]:
        return f.let(f"fpext {FLOAT[source]} {value} to {FLOAT[to]}")
    if rounding != "rn":
        raise Refused("only rounded to nearest")
    return _narrowed(f, value, to, source)


def _narrowed(f: Function, value: str, to: str, source: str) -> str:
    """To nearest even. To bf16 by its bits: some processors have an instruction that takes denormal numbers for 0."""
    if (to, source) != ("bf16", "f32"):
        return f.let(f"fptrunc {FLOAT[source]} {value} to {FLOAT[to]}")
    bits = f.let(f"bitcast float {value} to i32")
    odd = f.let(f"and i32 {f.let(f'lshr i32 {bits}, 16')}, 1")
    rounded = f.let(f"add i32 {bits}, {f.let(f'add i32 {odd}, 32767')}")
    is_nan = f.let(f"fcmp uno float {value}, {value}")
    chosen = f.let(f"select i1 {is_nan}, i32 {0x7FFF << 16}, i32 {rounded}")
    half = f.let(f"trunc i32 {f.let(f'lshr i32 {chosen}, 16')} to i16")
    return f.let(f"bitcast i16 {half} to {FLOAT[to]}")


def _to_integer(f: Function, value: str, to: str, source: str, rounding: str) -> str:
    llvm, width = FLOAT[source], WIDTH[to]
    whole = f.call(llvm, f"llvm.{_TO_WHOLE[rounding]}.{source}", (llvm, value))
    kind = "s" if to[0] == "s" else "u"
    name = f"llvm.fpto{kind}i.sat.i{width}.{source}"
    found = f.call(f"i{width}", name, (llvm, whole))
    if source == "f64" or width == 64:
        is_nan = f.let(f"fcmp uno {llvm} {value}, {value}")
        found = f.let(f"select i1 {is_nan}, i{width} {-(1 << width - 1)}, i{width} {found}")
    return found


def _packed_or_tf32(f: Function, ins: Instruction, to: str, source: str, rounding: str) -> None:
    if source != "f32" or rounding not in ("rn", "rna"):
        raise Refused("only from f32, rounded to nearest")
    if (
        to == "tf32"
    ):  # ten bits of fraction; to nearest, ties away from zero: PTX ISA, "cvt". The others are as sm_80 and sm_90 leave them
        if rounding != "rna":
            raise Refused("only .rna")
        bits = f.read(ins.operands[1], 32)
        size = f.call("float", "llvm.fabs.f32", ("float", f.value(ins.operands[1], source)))
        is_number = f.let(f"fcmp olt float {size}, 0x7FF0000000000000")
        rounded = f.let(f"add i32 {bits}, 4096")
        f.write(ins.operands[0], f.let(f"select i1 {is_number}, i32 {rounded}, i32 {bits}"), "b32")
        return
    half = to.removesuffix("x2")
    high, low = [
        f.let(f"bitcast {FLOAT[half]} {_narrowed(f, f.value(one, source), half, source)} to i16")
        for one in ins.operands[1:3]
    ]
    top = f.let(f"shl i32 {f.resized(high, 16, 32)}, 16")
    f.write(ins.operands[0], f.let(f"or i32 {top}, {f.resized(low, 16, 32)}"), "b32")


def _convert_address(f: Function, ins: Instruction) -> None:
    """Shared memory is counted from its own start; every other space by addresses of the host."""
    address = f.read(ins.operands[1], 64)
    if "shared" in ins.parts:
        base = f.let("ptrtoint ptr %shared to i64")
        operator = "sub" if "to" in ins.parts else "add"
        address = f.let(f"{operator} i64 {address}, {base}")
    f.write(ins.operands[0], address, "b64")


_SPACES = frozenset({"to", "global", "shared", "local", "const", "param"})
CONVERT = {
    "cvt": Operation(_convert, frozenset({"rn", "rna", *_TO_WHOLE})),
    "cvta": Operation(_convert_address, _SPACES),
}
