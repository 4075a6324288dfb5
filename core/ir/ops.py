"""The operations of the IR, each with its meaning in words; a row for each that works on elements.

The other parts read the rows: rules how an operation is called and which types it takes, printers its
name in other languages, tests which operations there are. docs/add-an-op.md says how to add one.

The same meanings stand as SMT terms in verify/encode/semantics.py and as plain Python in
core/ir/evaluate.py; tests compare the two by brute force. A change here, there or in the SMT terms
makes every proof stale, but for lines that only add an operation (rules/additions.py).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from proofgrad.core.ir.dtypes import Kind


class Ops(enum.IntEnum):
    """One name for each kind of node."""

    # leaves
    CONST = enum.auto()
    UNIQUE = enum.auto()
    DEVICE = enum.auto()
    BUFFER = enum.auto()
    PARAM = enum.auto()
    IOTA = enum.auto()
    RANGE = enum.auto()
    # one source
    NEG = enum.auto()
    NOT = enum.auto()
    SQRT = enum.auto()
    EXP2 = enum.auto()
    LOG2 = enum.auto()
    SIN = enum.auto()
    COS = enum.auto()
    TRUNC = enum.auto()
    CAST = enum.auto()
    BITCAST = enum.auto()
    # two sources
    ADD = enum.auto()
    MUL = enum.auto()
    FDIV = enum.auto()
    FLOORDIV = enum.auto()
    MOD = enum.auto()
    TRUNCDIV = enum.auto()
    TRUNCMOD = enum.auto()
    FMOD = enum.auto()
    POW = enum.auto()
    MAX = enum.auto()
    MIN = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    SHL = enum.auto()
    SHR = enum.auto()
    CMPLT = enum.auto()
    CMPEQ = enum.auto()
    # three sources
    WHERE = enum.auto()
    MULACC = enum.auto()
    FMA = enum.auto()
    # movement (TensorGraph)
    RESHAPE = enum.auto()
    PERMUTE = enum.auto()
    EXPAND = enum.auto()
    PAD = enum.auto()
    SHRINK = enum.auto()
    FLIP = enum.auto()
    SKEW = enum.auto()
    # other tensor operations
    REDUCE_AXIS = enum.auto()
    CONTIGUOUS = enum.auto()
    DETACH = enum.auto()
    COPY = enum.auto()
    # memory and loops (Kernel, Program, Linear)
    INDEX = enum.auto()
    LOAD = enum.auto()
    STORE = enum.auto()
    REDUCE = enum.auto()
    ACCUMULATOR = enum.auto()
    UPDATE = enum.auto()
    RESULT = enum.auto()
    LOCAL_BUFFER = enum.auto()
    SCRATCH = enum.auto()
    FILLED = enum.auto()
    END = enum.auto()
    # vectors (Program, Linear)
    BROADCAST = enum.auto()
    HREDUCE = enum.auto()
    # structure
    CALL = enum.auto()
    SINK = enum.auto()
    LINEAR = enum.auto()
    # memory that changes, and sizes that are known when a plan runs (TensorGraph)
    ASSIGN = enum.auto()
    VARIABLE = enum.auto()
    BIND = enum.auto()
    # products of pairs of small integers (Kernel, Program, Linear)
    DOT = enum.auto()
    # products of small matrices (Kernel, Program, Linear)
    MMA = enum.auto()
    # factors of products at half precision
    TF32 = enum.auto()
    # functions as values (TensorGraph, until its buffers are numbered)
    APPLY = enum.auto()
    # a power of e (one source)
    EXP = enum.auto()

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    __str__ = __repr__


class Precision(enum.Enum):
    """What is promised of a float result."""

    EXACT = "exact"  # a float that needs no rounding, in whatever format the operands are
    ROUNDED = "rounded"  # IEEE 754: the exact result rounded once, to nearest even
    PUBLISHED = "published"  # within the bound of docs/numerics.md; every machine in its own way


INTS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
INTEGERS = INTS | {Kind.INDEX}
FLOATS = frozenset({Kind.FLOAT})
NUMBERS = INTEGERS | FLOATS
BITS = INTS | {Kind.BOOL}
EVERY_KIND = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """The row of an operation on elements: what every part of the project reads of it."""

    arity: int
    kinds: frozenset[Kind]  # of its operands, which are of one type; of WHERE the last two
    meaning: str
    name: str = ""  # how rules call it, name(x, y); "" where they write a sign
    precision: Precision = Precision.EXACT  # of float results
    gives_bool: bool = False  # else a value of the type of its operands
    commutes: bool = False
    is_step: bool = False  # of floats: never goes down, constant between jumps; no gradient passes
    numpy: str = ""  # the function of numpy that is it on every float; "" where none is
    llvm: str = ""  # the intrinsic of LLVM that is it on every float, as "trunc" of llvm.trunc.f32
    c: str = ""  # the function of C and OpenCL C that is it on every float
    no_bounds: str = ""  # of floats: why no line of rules/bounds.rules is about it


ELEMENTS: dict[Ops, Elementwise] = {
    Ops.NEG: Elementwise(
        1, NUMBERS,
        "-x. Ints: modulo 2**bits. Floats: the sign bit flipped.",
        numpy="negative",
    ),
    Ops.NOT: Elementwise(
        1, BITS,
        "Bools: logical not. Ints: every bit flipped.",
    ),
    Ops.SQRT: Elementwise(
        1, FLOATS,
        "Square root, correctly rounded; of a negative number NaN; of -0.0 it is -0.0.",
        name="sqrt", precision=Precision.ROUNDED, numpy="sqrt", llvm="sqrt", c="sqrt",
    ),
    Ops.EXP2: Elementwise(
        1, FLOATS,
        "2**x, within the published error bound (docs/numerics.md).",
        name="exp2", precision=Precision.PUBLISHED, numpy="exp2",
    ),
    Ops.EXP: Elementwise(
        1, FLOATS,
        "e**x, within the published error bound (docs/numerics.md).",
        name="exp", precision=Precision.PUBLISHED, numpy="exp",
    ),
    Ops.LOG2: Elementwise(
        1, FLOATS,
        "Logarithm to base 2, within the published error bound; NaN below 0, -inf at 0.",
        name="log2", precision=Precision.PUBLISHED, numpy="log2",
        no_bounds="any real number, and -inf",
    ),
    Ops.SIN: Elementwise(
        1, FLOATS,
        "Sine of x radians, within the published error bound; NaN at infinities.",
        name="sin", precision=Precision.PUBLISHED, numpy="sin",
        no_bounds="its error bound does not say that it stays within -1 and 1",
    ),
    Ops.COS: Elementwise(
        1, FLOATS,
        "Cosine of x radians, within the published error bound; NaN at infinities.",
        name="cos", precision=Precision.PUBLISHED, numpy="cos",
        no_bounds="its error bound does not say that it stays within -1 and 1",
    ),
    Ops.TRUNC: Elementwise(
        1, FLOATS,
        "Floats: rounded towards zero to an integral value, sign of zero kept.",
        name="trunc", is_step=True, numpy="trunc", llvm="trunc", c="trunc",
    ),
    Ops.ADD: Elementwise(
        2, NUMBERS,
        "Ints: modulo 2**bits. Floats: IEEE, to nearest even. Not on bools.",
        precision=Precision.ROUNDED, commutes=True, numpy="add",
    ),
    Ops.MUL: Elementwise(
        2, NUMBERS,
        "Ints: modulo 2**bits. Floats: IEEE, to nearest even. Not on bools.",
        precision=Precision.ROUNDED, commutes=True, numpy="multiply",
    ),
    Ops.FDIV: Elementwise(
        2, FLOATS,
        "Floats: IEEE division, to nearest even.",
        precision=Precision.ROUNDED, numpy="divide",
    ),
    Ops.FLOORDIV: Elementwise(
        2, INTEGERS,
        "Ints: rounded towards minus infinity, modulo 2**bits; x // 0 = 0.",
    ),
    Ops.MOD: Elementwise(
        2, INTEGERS,
        "Ints: x - (x // y) * y, so it has the sign of y; x % 0 = 0.",
    ),
    Ops.TRUNCDIV: Elementwise(
        2, INTEGERS,
        "Ints: rounded towards zero, modulo 2**bits; by 0 it is 0.",
        name="truncdiv",
    ),
    Ops.TRUNCMOD: Elementwise(
        2, INTEGERS,
        "Ints: x - truncdiv(x, y) * y, so it has the sign of x; by 0 it is 0.",
        name="truncmod",
    ),
    Ops.FMOD: Elementwise(
        2, FLOATS,
        "Floats: x - n * y, exactly, n the quotient rounded towards zero: fmod of C. It has the sign"
        " of x, also where it is 0; x where y is infinite; NaN if x is infinite or y is 0.",
        name="fmod", numpy="fmod", no_bounds="nothing asks for them",
    ),
    Ops.POW: Elementwise(
        2, FLOATS,
        "Floats: x**y, within the published error bound. 1 if x is 1 or y is 0, and of -1 to an infinite"
        " power; NaN of a number below 0 to a power that is not whole; else the limit at zeros and"
        " infinities, with the sign of x if y is odd: pow of IEEE 754.",
        name="pow", precision=Precision.PUBLISHED, numpy="power", no_bounds="any number",
    ),
    Ops.MAX: Elementwise(
        2, NUMBERS,
        "The larger. Floats: NaN if either is NaN; -0.0 is below 0.0. Not on bools.",
        name="max", commutes=True,
    ),
    Ops.MIN: Elementwise(
        2, NUMBERS,
        "The smaller. Floats: NaN if either is NaN; -0.0 is below 0.0. Not on bools.",
        name="min", commutes=True,
    ),
    Ops.AND: Elementwise(
        2, BITS,
        "Bools and ints: bitwise and.",
        commutes=True,
    ),
    Ops.OR: Elementwise(
        2, BITS,
        "Bools and ints: bitwise or.",
        commutes=True,
    ),
    Ops.XOR: Elementwise(
        2, BITS,
        "Bools and ints: bitwise exclusive or.",
        commutes=True,
    ),
    Ops.SHL: Elementwise(
        2, INTS,
        "Machine ints: x * 2**y modulo 2**bits; 0 if y, read as unsigned, is bits or more.",
    ),
    Ops.SHR: Elementwise(
        2, INTS,
        "Machine ints: x // 2**y (signed: copies the sign; unsigned: fills with 0); if y, read as"
        " unsigned, is bits or more: 0, or -1 for a negative x.",
    ),
    Ops.CMPLT: Elementwise(
        2, BITS | NUMBERS,
        "x < y as a bool; false if either is NaN. On bools, false < true.",
        gives_bool=True, is_step=True, numpy="less",
    ),
    Ops.CMPEQ: Elementwise(
        2, BITS | NUMBERS,
        "x == y as a bool; false if either is NaN; -0.0 == 0.0.",
        gives_bool=True, is_step=True, commutes=True, numpy="equal",
    ),
    Ops.WHERE: Elementwise(
        3, EVERY_KIND,
        "The second source where the first (a bool) is true, else the third.",
        name="where",
    ),
    Ops.MULACC: Elementwise(
        3, NUMBERS,
        "x * y + z. Ints: modulo 2**bits. Floats: only inside a reduction, where one or two"
        " roundings are both allowed.",
        name="mulacc", precision=Precision.ROUNDED,
        no_bounds="one or two roundings: nothing is proven of it",
    ),
    Ops.FMA: Elementwise(
        3, FLOATS,
        "Floats: IEEE fusedMultiplyAdd: the exact x * y + z, rounded once, to nearest even.",
        name="fma", precision=Precision.ROUNDED, llvm="fma", c="fma",
        no_bounds="any value; it stands inside of polynomials",
    ),
    Ops.DOT: Elementwise(
        2, INTS,
        "Machine ints: x and y are each two numbers of half the bits, of the same sign as the type:"
        " the product of the lower halves plus that of the upper ones, modulo 2**bits.",
        name="dot", commutes=True,
    ),
    Ops.TF32: Elementwise(
        1, FLOATS,
        "Floats: rounded to the 11 binary digits of TF32, of two neighbours to the one further from 0, as matrix"
        " units take factors of float32. What is too large becomes infinite. float16 and bfloat16 as they are.",
        name="tf32", no_bounds="it may round up, beyond the bounds of its operand",
    ),
}  # fmt: skip


def _those(choice: Callable[[Elementwise], bool]) -> frozenset[Ops]:
    return frozenset([op for op, row in ELEMENTS.items() if choice(row)])


ALU = frozenset(ELEMENTS)
UNARY = _those(lambda row: row.arity == 1)
BINARY = _those(lambda row: row.arity == 2)
TERNARY = _those(lambda row: row.arity == 3)
CASTS = frozenset({Ops.CAST, Ops.BITCAST})
# From one format of numbers to another: what is read or stored may be the value before or after.
CONVERSIONS = frozenset({Ops.CAST, Ops.TF32})
ELEMENTWISE = ALU | CASTS
COMPARE = _those(lambda row: row.gives_bool)
COMMUTATIVE = _those(lambda row: row.commutes)
APPROXIMATED = _those(lambda row: row.precision is Precision.PUBLISHED)
MOVEMENT = frozenset(
    {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.SKEW}
)

MEANING: dict[Ops, str] = {
    **{op: row.meaning for op, row in ELEMENTS.items()},
    Ops.CONST: "The value `arg`; with a vector type, the lanes `arg[0], arg[1], ...`.",
    Ops.UNIQUE: "A number that makes a buffer different from every other buffer.",
    Ops.DEVICE: "The name of a device.",
    Ops.BUFFER: "`arg` elements of memory; sources: UNIQUE, DEVICE. Shape (arg,).",
    Ops.PARAM: "Parameter `arg = (slot, size)` of a kernel: `size` elements of memory.",
    Ops.IOTA: "The integers 0, 1, ..., arg-1, wrapped to the type. Shape (arg,).",
    Ops.RANGE: "The counter 0, 1, ..., n-1 of a loop; source: n; arg = (number, AxisRole).",
    Ops.CAST: (
        "The value in another type. To bool: x != 0 (NaN is true). Int to int: modulo 2**bits. Int"
        " to float and float to float: rounded to nearest even. Float to int: towards zero,"
        " saturating at the ends of the type, NaN gives 0. Bool to number: 0 or 1. To fp8e4m3, which"
        " has no infinity: NaN for what rounds to more than 448. To fp8e5m2: infinity for what rounds"
        " to more than 57344. To fp8e4m3fnuz and fp8e5m2fnuz, which have no infinity and no -0.0: NaN"
        " for what rounds to more than 240, and 57344, and 0.0 for what rounds to zero."
    ),
    Ops.BITCAST: "The same bits read as another type of the same width.",
    Ops.RESHAPE: "The same elements in row-major order under the shape `arg`.",
    Ops.PERMUTE: "Axis k of the result is axis arg[k] of the source.",
    Ops.EXPAND: "Axes of size 1 repeated to the sizes `arg`.",
    Ops.PAD: "arg[k] = (before, after) elements 0 (or false) added to axis k.",
    Ops.SHRINK: "arg[k] = (begin, end): the elements begin <= i < end of axis k.",
    Ops.FLIP: "Axes k with arg[k] true reversed.",
    Ops.SKEW: (
        "arg = (axis, by, step, size): y[.., i, ..] = x[.., i + step * k, ..] where i is the index on"
        " `axis`, k the index on axis `by`; 0 (false) outside of x. Axis `axis` gets `size`."
    ),
    Ops.REDUCE_AXIS: (
        "arg = (op, axes): the axes reduced to size 1 by op in ADD, MUL, MAX, MIN. The order is not"
        " specified. Over nothing: 0, 1, the smallest, the largest value."
    ),
    Ops.CONTIGUOUS: "The same values, and they get a buffer.",
    Ops.DETACH: "The same values; no gradient passes.",
    Ops.COPY: "The same values on the device `arg`.",
    Ops.INDEX: "The position of element src[1] of the buffer src[0]; src[2], a bool, is its mask.",
    Ops.LOAD: (
        "The element at an INDEX; 0 (false) where the mask is false. With loops src[1:], which a STORE at"
        " that INDEX has as well: as it is in each of their iterations."
    ),
    Ops.STORE: (
        "Write src[1] at the INDEX src[0]; nothing where the mask is false. With loops src[2:]: for each"
        " of their values in order, one after the other. With `arg` (ADD, MUL, MAX, MIN; Kernel only):"
        " write what is there, combined with src[1] by `arg`."
    ),
    Ops.REDUCE: (
        "src[0] combined by `arg` (ADD, MUL, MAX, MIN) over all values of the RANGEs src[1:]. The"
        " order is not specified. Starts from the identity of `arg` (0.0 for a float ADD)."
    ),
    Ops.ACCUMULATOR: "A register; set to src[0] before the loops src[1:] begin; arg tells it apart.",
    Ops.UPDATE: "Set the accumulator src[0] to src[1]; runs inside all its loops.",
    Ops.RESULT: "The accumulator of the UPDATE src[0], after its loops have ended.",
    Ops.LOCAL_BUFFER: (
        "Memory that holds src[0] for all values of the RANGEs src[1:], in row-major order of them. It is"
        " the buffer of INDEX nodes."
    ),
    Ops.SCRATCH: "`arg = (number, size)`: memory of `size` elements that a run of a kernel has to itself.",
    Ops.FILLED: "The SCRATCH that the STORE src[0] fills, after the loops src[1:] have ended.",
    Ops.END: "Linear only: the end of the body of the loop src[0].",
    Ops.BROADCAST: "A vector with the scalar src[0] in every lane.",
    Ops.HREDUCE: "The lanes of src[0] combined by `arg`, in an order that is not specified.",
    Ops.CALL: "Run the kernel src[0] on the buffers src[1:]; the first is written. arg: CallInfo.",
    Ops.SINK: "Holds the roots of a graph.",
    Ops.LINEAR: "The nodes of a program in the order in which they run.",
    Ops.ASSIGN: (
        "src[0] is a BUFFER seen through movement operations that repeat no element. The elements"
        " of that buffer, with those of src[1] in the positions seen, which may be written over it."
        " src[1] may also be the CALL that does it."
    ),
    Ops.VARIABLE: "An index, the same everywhere in one run; arg = (name, smallest, largest).",
    Ops.BIND: "The variable src[0], which is src[1], a constant, in this graph.",
    Ops.MMA: (
        "arg = (h, n). A product of the matrices A, 8h x 4n, and B, 4n x 8, whose elements the items of a warp hold"
        " (core/ir/fragments.py): the items 32w, ..., 32w + 31 of the RANGE src[0]. src[1] + sum of A[r, k] * B[k, c] over"
        " k < 4n, in an order that is not specified, where (r, c) is the element that the item holds as that of"
        " number src[-2], a RANGE below 2h. src[2]: what an item holds of B, src[3:3+h]: of each 8 rows of A, for the"
        " values of the RANGE src[-1] below n; each as it is in the item that holds it. Where one of these two"
        " loops became lanes it is no source. Factors are converted to the type of the sum, or are of it. Or arg = (s, p, g): A is"
        " s x pg, B is pg x s, src[0] is 0, and one item holds all elements: src[2] those of B, src[3] those of A, below s * pg; src[-2]"
        " is below s * s."
    ),
    Ops.APPLY: "The value of the graph `arg`, in which PARAM number k is the elements of src[k].",
}
