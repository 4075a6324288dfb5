"""The instructions of CAST and BITCAST, each rounded once and saturating as core/ir/ops.py states.

Owns: conversions between any two types, lane-wise. Does not own: arithmetic.

A float64 or a wide integer reaches a 16-bit float through a float32 that is rounded to odd, which
makes the second rounding come out as if it were the only one. Source: Boldo and Melquiond, 2008.
"""

from __future__ import annotations

from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.ir.dtypes import DType, Kind, dtypes

_SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16)
_PRECISION = {dtypes.float32: 24, dtypes.float64: 53}


def write_cast(writer: Writer, value: str, source: DType, target: DType) -> str:
    """`value` of type `source` as the type `target`, which has the same lanes."""
    if source is target:
        return value
    if target.is_bool:
        return _to_bool(writer, value, source)
    match source.kind, target.kind:
        case Kind.FLOAT, Kind.FLOAT:
            return _float_to_float(writer, value, source, target)
        case Kind.FLOAT, _:
            return _float_to_int(writer, value, source, target)
        case _, Kind.FLOAT:
            return _int_to_float(writer, value, source, target)
        case _:
            return _int_to_int(writer, value, source, target)


def write_bitcast(writer: Writer, value: str, source: DType, target: DType) -> str:
    """The bits of `value` read as `target`."""
    if target.is_bool:
        return _to_bool(writer, value, source)
    if source.is_bool:
        return _convert(writer, "zext", value, source, target)
    if register_type(source) == register_type(target):
        return value
    return _convert(writer, "bitcast", value, source, target)


def _convert(writer: Writer, operator: str, value: str, source: DType, target: DType) -> str:
    return writer.let(f"{operator} {register_type(source)} {value} to {register_type(target)}")


def _with_lanes(scalar: DType, like: DType) -> DType:
    return scalar.vec(like.lanes)


def _to_bool(writer: Writer, value: str, source: DType) -> str:
    if source.is_bool:
        return value
    if source.scalar in _SMALL_FLOATS:
        single = _with_lanes(dtypes.float32, source)
        return _to_bool(writer, _widen(writer, value, source), single)
    compare = "fcmp une" if source.is_float else "icmp ne"
    zero = literal(0.0 if source.is_float else 0, source)
    return writer.let(f"{compare} {register_type(source)} {value}, {zero}")


def _int_to_int(writer: Writer, value: str, source: DType, target: DType) -> str:
    if source.is_bool:
        return _convert(writer, "zext", value, source, target)
    if source.bits == target.bits:
        return value
    if source.bits > target.bits:
        return _convert(writer, "trunc", value, source, target)
    extend = "sext" if source.kind is Kind.SIGNED else "zext"
    return _convert(writer, extend, value, source, target)


# -- to float ---------------------------------------------------------------------------------------


def _float_to_float(writer: Writer, value: str, source: DType, target: DType) -> str:
    single = _with_lanes(dtypes.float32, source)
    if source.scalar in _SMALL_FLOATS:
        widened = _widen(writer, value, source)
        return write_cast(writer, widened, single, target)
    if target.scalar in _SMALL_FLOATS:
        if source.scalar is dtypes.float64:
            value = _round_to_odd(writer, value, source)
        return _narrow(writer, value, target)
    operator = "fpext" if target.bits > source.bits else "fptrunc"
    return _convert(writer, operator, value, source, target)


def _widen(writer: Writer, value: str, source: DType) -> str:
    if source.scalar is dtypes.bfloat16:
        return _widen_bfloat16(writer, value, source)
    if not writer.dialect.has_half:
        return _widen_half_by_bits(writer, value, source)
    return _convert(writer, "fpext", value, source, _with_lanes(dtypes.float32, source))


def _widen_half_by_bits(writer: Writer, value: str, source: DType) -> str:
    """Exponent and fraction moved into position as a number 2**112 too small, then scaled exactly."""
    single, word = _with_lanes(dtypes.float32, source), _with_lanes(dtypes.uint32, source)
    word_type, short = register_type(word), _with_lanes(dtypes.uint16, source)
    halfword = _convert(writer, "bitcast", value, source, short)
    bits = _convert(writer, "zext", halfword, short, word)
    size = writer.let(f"and {word_type} {bits}, {literal(0x7FFF, word)}")
    moved = writer.let(f"shl {word_type} {size}, {literal(13, word)}")
    small = _convert(writer, "bitcast", moved, word, single)
    scaled = writer.let(f"fmul {register_type(single)} {small}, {literal(2.0**112, single)}")
    finite = _convert(writer, "bitcast", scaled, single, word)
    special = writer.let(f"or {word_type} {moved}, {literal(0x7F800000, word)}")
    is_special = writer.let(f"icmp uge {word_type} {size}, {literal(0x7C00, word)}")
    magnitude = writer.select(is_special, word, special, finite)
    sign = writer.let(f"xor {word_type} {bits}, {size}")
    moved_sign = writer.let(f"shl {word_type} {sign}, {literal(16, word)}")
    signed = writer.let(f"or {word_type} {magnitude}, {moved_sign}")
    return _convert(writer, "bitcast", signed, word, single)


def _widen_bfloat16(writer: Writer, value: str, source: DType) -> str:
    word = _with_lanes(dtypes.uint32, source)
    extended = _convert(writer, "zext", value, source, word)
    bits = writer.let(f"shl {register_type(word)} {extended}, {literal(16, word)}")
    return _convert(writer, "bitcast", bits, word, _with_lanes(dtypes.float32, source))


def _narrow(writer: Writer, value: str, target: DType) -> str:
    """A float32 as one of the 16-bit floats."""
    single, word = _with_lanes(dtypes.float32, target), _with_lanes(dtypes.uint32, target)
    if target.scalar is dtypes.float16 and writer.dialect.has_half:
        return _convert(writer, "fptrunc", value, single, target)
    if target.scalar is dtypes.float16:
        return _narrow_half_by_bits(writer, value, target)
    if writer.dialect.narrows_to_bfloat16:
        brain = "bfloat" if target.lanes == 1 else f"<{target.lanes} x bfloat>"
        narrow = writer.let(f"fptrunc {register_type(single)} {value} to {brain}")
        return writer.let(f"bitcast {brain} {narrow} to {register_type(target)}")
    word_type = register_type(word)
    bits = _convert(writer, "bitcast", value, single, word)
    upper = writer.let(f"lshr {word_type} {bits}, {literal(16, word)}")
    odd = writer.let(f"and {word_type} {upper}, {literal(1, word)}")
    bias = writer.let(f"add {word_type} {odd}, {literal(0x7FFF, word)}")
    rounded = writer.let(f"add {word_type} {bits}, {bias}")
    shifted = writer.let(f"lshr {word_type} {rounded}, {literal(16, word)}")
    is_nan = writer.let(f"fcmp uno {register_type(single)} {value}, {value}")
    chosen = writer.select(is_nan, word, literal(0x7FC0, word), shifted)
    return writer.let(f"trunc {word_type} {chosen} to {register_type(target)}")


def _narrow_half_by_bits(writer: Writer, value: str, target: DType) -> str:
    """To nearest even: normal numbers by an integer addition, denormal ones by adding 0.5.

    (The last bit of 0.5 has the weight of the last bit of a denormal float16.)
    """
    single, word = _with_lanes(dtypes.float32, target), _with_lanes(dtypes.uint32, target)
    word_type, float_type = register_type(word), register_type(single)
    bits = _convert(writer, "bitcast", value, single, word)
    size = writer.let(f"and {word_type} {bits}, {literal(0x7FFFFFFF, word)}")
    normal = _round_normal_half(writer, size, word)
    absolute = _convert(writer, "bitcast", size, word, single)
    half = writer.let(f"fadd {float_type} {absolute}, {literal(0.5, single)}")
    half_bits = _convert(writer, "bitcast", half, single, word)
    denormal = writer.let(f"sub {word_type} {half_bits}, {literal(0x3F000000, word)}")
    is_denormal = writer.let(f"icmp ult {word_type} {size}, {literal(0x38800000, word)}")
    finite = writer.select(is_denormal, word, denormal, normal)
    is_large = writer.let(f"icmp uge {word_type} {size}, {literal(0x47800000, word)}")
    bounded = writer.select(is_large, word, literal(0x7C00, word), finite)
    is_nan = writer.let(f"icmp ugt {word_type} {size}, {literal(0x7F800000, word)}")
    magnitude = writer.select(is_nan, word, literal(0x7E00, word), bounded)
    sign = writer.let(f"xor {word_type} {bits}, {size}")
    moved_sign = writer.let(f"lshr {word_type} {sign}, {literal(16, word)}")
    signed = writer.let(f"or {word_type} {magnitude}, {moved_sign}")
    short = _with_lanes(dtypes.uint16, target)
    return _convert(
        writer, "bitcast", _convert(writer, "trunc", signed, word, short), short, target
    )


def _round_normal_half(writer: Writer, size: str, word: DType) -> str:
    word_type = register_type(word)
    upper = writer.let(f"lshr {word_type} {size}, {literal(13, word)}")
    odd = writer.let(f"and {word_type} {upper}, {literal(1, word)}")
    rebias = (-112 << 23) + 0xFFF
    biased = writer.let(f"add {word_type} {size}, {literal(rebias, word)}")
    rounded = writer.let(f"add {word_type} {biased}, {odd}")
    return writer.let(f"lshr {word_type} {rounded}, {literal(13, word)}")


def _round_to_odd(writer: Writer, value: str, source: DType) -> str:
    """A float64 as float32; where that is not exact, the neighbour with an odd last bit."""
    single, word = _with_lanes(dtypes.float32, source), _with_lanes(dtypes.uint32, source)
    source_type, word_type = register_type(source), register_type(word)
    nearest = _convert(writer, "fptrunc", value, source, single)
    back = _convert(writer, "fpext", nearest, single, source)
    bits = _convert(writer, "bitcast", nearest, single, word)
    lost = writer.let(f"fcmp one {source_type} {back}, {value}")
    too_far = writer.let(
        f"fcmp ogt {source_type} {writer.call('fabs', source, (back,))},"
        f" {writer.call('fabs', source, (value,))}"
    )
    step = writer.select(too_far, word, literal(-1, word), literal(1, word))
    moved = writer.let(f"add {word_type} {bits}, {step}")
    odd = writer.let(
        f"trunc {word_type} {bits} to {register_type(_with_lanes(dtypes.bool, source))}"
    )
    other = writer.select(odd, word, bits, moved)
    chosen = writer.select(lost, word, other, bits)
    return _convert(writer, "bitcast", chosen, word, single)


def _int_to_float(writer: Writer, value: str, source: DType, target: DType) -> str:
    operator = "sitofp" if source.kind is Kind.SIGNED else "uitofp"
    if target.scalar not in _SMALL_FLOATS:
        return _convert(writer, operator, value, source, target)
    exact = _with_lanes(dtypes.float32 if source.bits <= 16 else dtypes.float64, source)
    if source.bits == 64:
        value = _make_exact_in_double(writer, value, source)
    converted = _convert(writer, operator, value, source, exact)
    return _float_to_float(writer, converted, exact, target)


def _make_exact_in_double(writer: Writer, value: str, source: DType) -> str:
    """A 64-bit integer, and where it has more than 53 bits, the lowest 11 made sticky in bit 11."""
    llvm_type = register_type(source)
    low = writer.let(f"and {llvm_type} {value}, {literal(2047, source)}")
    some = writer.let(f"icmp ne {llvm_type} {low}, {literal(0, source)}")
    sticky = writer.select(some, source, literal(2048, source), literal(0, source))
    high = writer.let(f"and {llvm_type} {value}, {literal(-2048, source)}")
    cut = writer.let(f"or {llvm_type} {high}, {sticky}")
    if source.kind is Kind.SIGNED:
        moved = writer.let(f"add {llvm_type} {value}, {literal(1 << 53, source)}")
        short = writer.let(f"icmp ult {llvm_type} {moved}, {literal(1 << 54, source)}")
    else:
        short = writer.let(f"icmp ult {llvm_type} {value}, {literal(1 << 53, source)}")
    return writer.select(short, source, value, cut)


# -- to int -----------------------------------------------------------------------------------------


def _float_to_int(writer: Writer, value: str, source: DType, target: DType) -> str:
    """Clamped to the type first, so that the conversion is defined; NaN gives 0.

    (LLVM's own saturating conversion is taken apart lane by lane on x86.)
    """
    if source.scalar in _SMALL_FLOATS:
        value, source = _widen(writer, value, source), _with_lanes(dtypes.float32, source)
    assert target.lo is not None and target.hi is not None
    source_type = register_type(source)
    highest = _largest_float_within(target.hi, source)
    lowest = literal(float(target.lo), source)
    above = writer.let(f"fcmp ogt {source_type} {value}, {lowest}")
    raised = writer.select(above, source, value, lowest)
    below = writer.let(f"fcmp olt {source_type} {raised}, {literal(highest, source)}")
    clamped = writer.select(below, source, raised, literal(highest, source))
    wide = _with_lanes(_at_least_32_bits(target.scalar), target)
    operator = "fptosi" if wide.kind is Kind.SIGNED else "fptoui"
    converted = _convert(writer, operator, clamped, source, wide)
    if int(highest) != target.hi:
        over = writer.let(f"fcmp ogt {source_type} {value}, {literal(highest, source)}")
        converted = writer.select(over, wide, literal(target.hi, wide), converted)
    if target.lo != 0:  # a NaN became the lowest value
        is_nan = writer.let(f"fcmp uno {source_type} {value}, {value}")
        converted = writer.select(is_nan, wide, literal(0, wide), converted)
    return _int_to_int(writer, converted, wide, target)


def _at_least_32_bits(scalar: DType) -> DType:
    return scalar if scalar.bits >= 32 else dtypes.int32


def _largest_float_within(limit: int, source: DType) -> float:
    """The largest float not above `limit` = 2**k - 1."""
    excess = max(0, limit.bit_length() - _PRECISION[source.scalar])
    return float(limit >> excess << excess)
