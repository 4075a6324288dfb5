"""Arithmetic of float32 as IEEE 754 asks, in WGSL, which promises less.

Owns: these functions as text. Does not own: which a kernel uses (functions.py).

WGSL lets a compiler take a float for neither NaN nor infinite, ignore the sign of a zero, and contract; a quotient and a
root may be some units off, and fma() may round twice. So:
- operands are hidden from the compiler by an exclusive or with `nothing`, which is 0 and is known when the kernel runs;
- what asks for NaN looks at bits;
- a quotient or root is that of the device, corrected by the exact remainder, which is one of integers;
- a fused multiply-add is computed in 64 bits, as two words.
What is left to the device is whether it keeps denormal numbers (adapters.py tries).
"""

from __future__ import annotations

NOTHING = "nothing"  # set by each kernel from the number of its layers of groups, less one

HIDDEN = f"""fn float_of(bits: u32) -> f32 {{ return bitcast<f32>(bits ^ {NOTHING}); }}
fn hidden(x: f32) -> f32 {{ return bitcast<f32>(bitcast<u32>(x) ^ {NOTHING}); }}
fn is_nan(x: f32) -> bool {{ return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }}
"""

# K has 26 bits: 24 of a number, one more, and whether anything follows. Its value is K * 2**(e - 25).
_PACKED = """fn packed(sign: u32, e: i32, k: u32) -> f32 {
  if (e > 127i) { return float_of(sign | 0x7f800000u); }
  var shift = 2u;
  var lowest = 0u;
  if (e < -126i) { shift = 2u + min(u32(-126i - e), 26u); } else { lowest = u32(e + 126i) << 23u; }
  let kept = k >> shift;
  let lost = k & ((1u << shift) - 1u);
  let half = 1u << (shift - 1u);
  let up = select(0u, 1u, lost > half || (lost == half && (kept & 1u) == 1u));
  return float_of(sign | (lowest + kept + up));
}
"""
_PARTS = """fn mantissa(p: u32) -> u32 {
  if (p < 0x00800000u) { return p << (countLeadingZeros(p) - 8u); }
  return (p & 0x007fffffu) | 0x00800000u;
}
fn exponent(p: u32) -> i32 {
  if (p < 0x00800000u) { return -118i - i32(countLeadingZeros(p)); }
  return i32(p >> 23u) - 127i;
}
"""
# Source: WGSL, "Floating Point Accuracy": a quotient of normal numbers is within 2.5 units, so the remainder fits.
_DIVIDE = """fn divide(x: f32, y: f32) -> f32 {
  let p = bitcast<u32>(x) & 0x7fffffffu;
  let q = bitcast<u32>(y) & 0x7fffffffu;
  let sign = (bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u;
  if (p > 0x7f800000u || q > 0x7f800000u || (p == q && (p == 0u || p == 0x7f800000u))) {
    return float_of(0x7fc00000u);
  }
  if (p == 0x7f800000u || q == 0u) { return float_of(sign | 0x7f800000u); }
  if (q == 0x7f800000u || p == 0u) { return float_of(sign); }
  let m = mantissa(p);
  let n = mantissa(q);
  let below = select(0u, 1u, m < n);
  let near = (f32(m) / f32(n)) * select(8388608.0f, 16777216.0f, m < n);
  var k = u32(near);
  var rest = bitcast<i32>((m << (23u + below)) - k * n);
  var off = rest / i32(n);
  if (rest < off * i32(n)) { off -= 1i; }
  k += u32(off);
  rest -= off * i32(n);
  let more = select(0u, 2u, 2i * rest >= i32(n));
  let follows = select(0u, 1u, rest != 0i && 2i * rest != i32(n));
  return packed(sign, exponent(p) - exponent(q) - i32(below), (k << 2u) | more | follows);
}
"""
_ROOT = """fn root(x: f32) -> f32 {
  let p = bitcast<u32>(x);
  if (p == 0u || p == 0x80000000u || p == 0x7f800000u) { return x; }
  if (p > 0x7f800000u) { return float_of(0x7fc00000u); }
  let odd = exponent(p) & 1i;
  let m = mantissa(p) << u32(odd);
  var k = u32(sqrt(f32(m)) * 2896.309375740099f);
  var rest = bitcast<i32>((m << 23u) - k * k);
  let off = rest / i32(2u * k);
  rest -= off * (i32(2u * k) + off);
  k += u32(off);
  if (rest < 0i) { k -= 1u; rest += i32(2u * k + 1u); }
  if (rest > i32(2u * k)) { rest -= i32(2u * k + 1u); k += 1u; }
  let more = select(0u, 2u, rest > i32(k));
  return packed(0u, (exponent(p) - odd) / 2i, (k << 2u) | more | select(0u, 1u, rest != 0i));
}
"""
# A number of 64 bits is vec2(low, high). What is shifted out is kept as a last bit of 1.
_WORDS = """fn shifted(x: vec2<u32>, by: u32) -> vec2<u32> {
  if (by == 0u) { return x; }
  if (by >= 64u) { return vec2(select(0u, 1u, (x.x | x.y) != 0u), 0u); }
  if (by >= 32u) {
    let rest = by - 32u;
    let lost = select(x.x | (x.y & ((1u << rest) - 1u)), x.x, rest == 0u);
    return vec2((x.y >> rest) | select(0u, 1u, lost != 0u), 0u);
  }
  let lost = x.x & ((1u << by) - 1u);
  return vec2((x.x >> by) | (x.y << (32u - by)) | select(0u, 1u, lost != 0u), x.y >> by);
}
fn sum_of(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let low = x.x + y.x;
  return vec2(low, x.y + y.y + select(0u, 1u, low < x.x));
}
fn rest_of(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2(x.x - y.x, x.y - y.y - select(0u, 1u, x.x < y.x));
}
"""
_FUSED = """fn fused(x: f32, y: f32, z: f32) -> f32 {
  let p = bitcast<u32>(x) & 0x7fffffffu;
  let q = bitcast<u32>(y) & 0x7fffffffu;
  let r = bitcast<u32>(z) & 0x7fffffffu;
  let sign = (bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u;
  let other = bitcast<u32>(z) & 0x80000000u;
  if (max(p, max(q, r)) > 0x7f800000u) { return float_of(0x7fc00000u); }
  if (p == 0x7f800000u || q == 0x7f800000u) {
    if (p == 0u || q == 0u || (r == 0x7f800000u && sign != other)) { return float_of(0x7fc00000u); }
    return float_of(sign | 0x7f800000u);
  }
  if (r == 0x7f800000u) { return z; }
  if (p == 0u || q == 0u) {
    if (r != 0u) { return z; }
    return float_of(sign & other);
  }
  let m = mantissa(p);
  let n = mantissa(q);
  let low = (m & 0xfffu) * (n & 0xfffu);
  let middle = (m & 0xfffu) * (n >> 12u) + (m >> 12u) * (n & 0xfffu) + (low >> 12u);
  let high = (m >> 12u) * (n >> 12u) + (middle >> 12u);
  let last = (low & 0xfffu) | ((middle & 0xfffu) << 12u);
  var product = vec2(last << 14u, (high << 6u) | (last >> 18u));
  var term = vec2(0u, 0u);
  var e = exponent(p) + exponent(q);
  if (r != 0u) {
    term = vec2(0u, mantissa(r) << 5u);
    let apart = e - exponent(r);
    if (apart >= 0i) { term = shifted(term, u32(apart)); } else {
      product = shifted(product, u32(-apart));
      e = exponent(r);
    }
  }
  var result_sign = sign;
  var total = sum_of(product, term);
  if (r != 0u && sign != other) {
    let is_less = product.y < term.y || (product.y == term.y && product.x < term.x);
    total = rest_of(product, term);
    if (is_less) { total = rest_of(term, product); result_sign = other; }
    if ((total.x | total.y) == 0u) { return float_of(0u); }
  }
  var top = 63i - i32(countLeadingZeros(total.y));
  if (total.y == 0u) { top = 31i - i32(countLeadingZeros(total.x)); }
  var k = total.x << u32(max(25i - top, 0i));
  if (top > 25i) { k = shifted(total, u32(top - 25i)).x; }
  return packed(result_sign, e + top - 60i, k);
}
"""
_SUM = "fn sum(x: f32, y: f32) -> f32 { return hidden(x) + hidden(y); }\n"
_PRODUCT = "fn product(x: f32, y: f32) -> f32 { return hidden(x) * hidden(y); }\n"
_IS_LESS = f"fn is_less(x: f32, y: f32) -> bool {{ return (hidden(x) < hidden(y)) != ({NOTHING} != 0u); }}\n"
_IS_SAME = f"fn is_same(x: f32, y: f32) -> bool {{ return (hidden(x) == hidden(y)) != ({NOTHING} != 0u); }}\n"
_NEGATED = "fn negated(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u); }\n"
_TOWARDS_ZERO = """fn towards_zero(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let e = i32((bits >> 23u) & 0xffu) - 127i;
  if (e >= 23i) { return x; }
  if (e < 0i) { return float_of(bits & 0x80000000u); }
  return float_of(bits & ~((1u << u32(23i - e)) - 1u));
}
"""


def _order(name: str, test: str, zeros: str) -> str:
    """NaN wins; of equal numbers, which differ at most in the sign of 0, join the bits."""
    return f"""fn {name}(x: f32, y: f32) -> f32 {{
  if (is_nan(x) || is_nan(y)) {{ return float_of(0x7fc00000u); }}
  if (is_same(x, y)) {{ return float_of(bitcast<u32>(x) {zeros} bitcast<u32>(y)); }}
  if ({test}) {{ return x; }}
  return y;
}}
"""


# Each with those that it calls; HIDDEN stands before all.
FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "packed": (_PACKED, ()),
    "parts": (_PARTS, ()),
    "words": (_WORDS, ()),
    "divide": (_DIVIDE, ("packed", "parts")),
    "root": (_ROOT, ("packed", "parts")),
    "fused": (_FUSED, ("packed", "parts", "words")),
    "sum": (_SUM, ()),
    "product": (_PRODUCT, ()),
    "is_less": (_IS_LESS, ()),
    "is_same": (_IS_SAME, ()),
    "negated": (_NEGATED, ()),
    "towards_zero": (_TOWARDS_ZERO, ()),
    "larger": (_order("larger", "is_less(y, x)", "&"), ("is_less", "is_same")),
    "smaller": (_order("smaller", "is_less(x, y)", "|"), ("is_less", "is_same")),
}
