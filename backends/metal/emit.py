"""Linear -> Metal: `kernel void name(device float *data0 [[buffer(0)]], ..., uint item [[thread_position_in_grid]])`.

Owns: what differs from OpenCL C: signature, head, names of what is built in. Does not own: statements and expressions
(backends/opencl).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proofgrad.backends.opencl import emit as opencl
from proofgrad.backends.opencl.dialect import Dialect
from proofgrad.core.compile.lowering.program_facts import parameters
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

# Metal has no float64, in which other machines compute these.
NATIVE = {
    Ops.SIN: "precise::sin",
    Ops.COS: "precise::cos",
    Ops.POW: "precise::pow",
    Ops.FMOD: "exact_remainder",
}
# Metal's own fmod rounds the quotient. This is a long division, bit by bit.
_REMAINDER = """static float exact_remainder(float x, float y) {
  uint p = as_uint(x) & 0x7fffffffu, q = as_uint(y) & 0x7fffffffu;
  if (p >= 0x7f800000u || q > 0x7f800000u || q == 0) return NAN;
  if (p < q) return x;
  int ex = max(int(p >> 23), 1), ey = max(int(q >> 23), 1);
  uint m = p >= 0x00800000u ? (p & 0x7fffffu) | 0x800000u : p;
  uint n = q >= 0x00800000u ? (q & 0x7fffffu) | 0x800000u : q;
  m %= n;
  for (int k = ey; k < ex; k++) m = (m << 1) % n;
  uint sign = as_uint(x) & 0x80000000u;
  for (; m < 0x00800000u && ey > 1 && m != 0; ey--) m <<= 1;
  uint size = m < 0x00800000u ? m : (m - 0x00800000u) | uint(ey) << 23;
  return as_float(sign | size);
}
"""
_SATURATED = """static {name} convert_{name}_sat_rtz(float x) {{
  return x <= {low} ? {first} : x >= {high} ? {last} : ({name})x;
}}
"""
_BITS = {
    "char": 8,
    "uchar": 8,
    "short": 16,
    "ushort": 16,
    "int": 32,
    "uint": 32,
    "long": 64,
    "ulong": 64,
}


def emit(linear: UOp, name: str) -> Source:
    """The kernel as Metal text. Raises: CompileError."""
    slots = parameters(linear)
    source = opencl.emit(linear, name, has_fma=True, dialect=_METAL)
    text = source.text
    for k, slot in enumerate(slots):
        text = re.sub(rf"(\*data{slot})(,\n)", rf"\1 [[buffer({k})]]\2", text, count=1)
    return Source(
        source.language, name, text, source.params, source.global_size,
        group_size=source.group_size, cost_flops=source.cost_flops, program=linear,
    )  # fmt: skip


def _with_head(_: Sequence[UOp], name: str, text: str) -> str:
    for plain, placed in (
        ("(const half *)&", "(thread const half *)&"),
        ("(half *)&", "(thread half *)&"),
    ):
        text = text.replace(plain, placed)
    if "exact_remainder(" in text:
        text = _REMAINDER + "\n" + text
    lines = [
        f"// {name}: compile with -fno-fast-math",
        "#include <metal_stdlib>",
        "using namespace metal;",
        "#pragma METAL fp contract(off)",
        "#define get_global_id(k) item",
    ]
    lines += [f"#define as_{kind}(x) as_type<{kind}>(x)" for kind in _casts(text)]
    return "\n".join(lines) + "\n\n" + _functions(text) + text


def _casts(text: str) -> list[str]:
    return sorted(set(re.findall(r"\bas_(?!type)(\w+)\(", text)))


def _functions(text: str) -> str:
    """What OpenCL C has built in and Metal has not."""
    found = []
    for name in sorted(set(re.findall(r"\bconvert_(\w+)_sat_rtz\(", text))):
        bits, is_signed = _BITS[name], not name.startswith("u")
        first, end = (-(1 << (bits - 1)), 1 << (bits - 1)) if is_signed else (0, 1 << bits)
        suffix = {"int": "", "uint": "u", "long": "L", "ulong": "UL"}.get(name, "")
        lowest = f"({first + 1}{suffix} - 1)" if is_signed else f"0{suffix}"
        words = {"first": lowest, "last": f"{end - 1}{suffix}"}
        found.append(
            _SATURATED.format(name=name, low=f"{float(first)}f", high=f"{float(end)}f", **words)
        )
    if re.search(r"\bvload_half\(", text):
        found.append(
            "static float vload_half(int at, thread const half *x) { return float(x[at]); }\n"
        )
    if re.search(r"\bvstore_half_rte\(", text):
        found.append(
            "static void vstore_half_rte(float x, int at, thread half *to) { to[at] = half(x); }\n"
        )
    return "\n".join(found) + "\n" if found else ""


_METAL = Dialect(
    language="metal",
    signature="kernel void {name}(\n    {arguments},\n    uint item [[thread_position_in_grid]])",
    read_pointer="device const {type} *",
    written_pointer="device {type} *",
    between_arguments=",\n    ",
    contracts=False,
    finish=_with_head,
    native=NATIVE,
)
