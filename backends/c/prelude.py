"""Types and functions that OpenCL C has built in, as C: those that a kernel uses, and no more.

Owns: these definitions. Does not own: which of them a kernel uses, which its text says.
"""

from __future__ import annotations

import re

from proofgrad.core.ir.ops import ELEMENTS

_MATHS = "|".join(
    [*sorted({row.c for row in ELEMENTS.values() if row.c}), "fabs|copysign|ldexp|NAN|INFINITY"]
)
_HEADERS = {
    "#include <stdbool.h>": r"\b(bool|true|false)\b",
    "#include <tgmath.h>": rf"\b({_MATHS})\b",
}
# In C, char has a sign or none, and long has 32 bits or 64. The names defined over come last.
_TYPES = {
    "uchar": "typedef unsigned char uchar;",
    "ushort": "typedef unsigned short ushort;",
    "uint": "typedef unsigned int uint;",
    "ulong": "typedef unsigned long long ulong;",
    "half": "typedef unsigned short half;",
    "char": "#define char signed char",
    "long": "#define long long long",
}
_LIMITS = {
    "char": ("-128", "127", "128.0"),
    "uchar": ("0", "255", "256.0"),
    "short": ("-32768", "32767", "32768.0"),
    "ushort": ("0", "65535", "65536.0"),
    "int": ("-2147483647 - 1", "2147483647", "2147483648.0"),
    "uint": ("0", "4294967295u", "4294967296.0"),
    "long": ("-9223372036854775807ll - 1", "9223372036854775807ll", "9223372036854775808.0"),
    "ulong": ("0", "18446744073709551615ull", "18446744073709551616.0"),
}
_CLZ = "static inline int clz(ulong x) { return x == 0 ? 64 : __builtin_clzll(x); }"
# Source: the bits of IEEE 754 binary16. Times 2**112 moves a half's exponent to a float's, exactly.
_VLOAD_HALF = """static inline float vload_half(int at, const half *position) {
  uint bits = position[at], rest = bits & 0x7fffu;
  uint size = rest >= 0x7c00u ? 0x7f800000u | rest << 13 : as_uint(as_float(rest << 13) * 0x1p112f);
  return as_float((bits & 0x8000u) << 16 | size);
}"""
# Adding 0.5, whose last bit is the unit of a half's denormals, rounds to them.
_VSTORE_HALF = """static inline void vstore_half_rte(float x, int at, half *position) {
  uint bits = as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) size = 0x7e00u;
  else if (size >= 0x477ff000u) size = 0x7c00u;
  else if (size < 0x38800000u) size = as_uint(as_float(size) + 0.5f) - 0x3f000000u;
  else size = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  position[at] = (half)(sign | size);
}"""


def prelude_of(text: str) -> str:
    """The definitions that `text` needs before it."""
    functions = _functions(text)
    everything = "\n".join([*functions, text])
    headers = [line for line, words in _HEADERS.items() if re.search(words, everything)]
    types = [line for name, line in _TYPES.items() if re.search(rf"\b{name}\b", everything)]
    return "".join([f"{line}\n" for line in [*headers, *types, *functions]]) + "\n"


def _functions(text: str) -> list[str]:
    found = []
    halves = re.search(r"\bv(load|store)_half", text)
    casts = set(re.findall(r"\bas_(\w+)\(", text)) | ({"uint", "float"} if halves else set())
    for name in sorted(casts):
        found.append(
            f"#define as_{name}(x) \\\n  ({{ __auto_type from_ = (x); {name} to_; "
            "__builtin_memcpy(&to_, &from_, sizeof to_); to_; })"
        )
    for name in sorted(set(re.findall(r"\bconvert_(\w+)_sat_rtz\(", text))):
        low, high, beyond = _LIMITS[name]
        found.append(
            f"static inline {name} convert_{name}_sat_rtz(double x) {{\n"
            f"  return x <= (double)({low}) ? {low} : x >= {beyond} ? {high} : ({name})x;\n}}"
        )
    if re.search(r"\bclz\(", text):
        found.append(_CLZ)
    if re.search(r"\bvload_half\(", text):
        found.append(_VLOAD_HALF)
    if re.search(r"\bvstore_half_rte\(", text):
        found.append(_VSTORE_HALF)
    return found
