"""Sine, cosine, powers and remainders of float32 in WGSL, without the float64 in which other machines compute them.

Owns: these functions as text. Does not own: arithmetic (floats.py), 2**x and log2(x), which need no wider type
(core/compile/math).

A pair is vec2(high, low): the number high + low, of some 48 bits. Angles are reduced as M. Payne and R. Hanek (1983) do: the
24 bits of a number are multiplied with the right window of the bits of 1 / 2pi as integers, so no angle is too large.
"""

from __future__ import annotations

from proofgrad.core.ir.ops import Ops

# Source of the constants: their values to 40 digits, rounded to float32, and what is left rounded again.
_PAIRS = """fn exact_product(x: f32, y: f32) -> vec2<f32> {
  let p = product(x, y);
  return vec2(p, fused(x, y, negated(p)));
}
fn exact_sum(x: f32, y: f32) -> vec2<f32> {
  let s = sum(x, y);
  return vec2(s, sum(y, negated(sum(s, negated(x)))));
}
fn pair_product(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
  let p = exact_product(x.x, y.x);
  return exact_sum(p.x, sum(p.y, sum(product(x.x, y.y), product(x.y, y.x))));
}
fn pair_sum(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
  let s = exact_sum(x.x, y.x);
  return exact_sum(s.x, sum(s.y, sum(x.y, y.y)));
}
"""
_ANGLE = """const TURNS = array<u32, 10>(
  0x00000000u, 0x00000000u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u,
  0x7f9458eau, 0xf7aef158u
);
fn high_word(x: u32, y: u32) -> u32 {
  let low = (x & 0xffffu) * (y & 0xffffu);
  let cross = (x & 0xffffu) * (y >> 16u);
  let other = (x >> 16u) * (y & 0xffffu);
  let middle = (low >> 16u) + (cross & 0xffffu) + (other & 0xffffu);
  return (x >> 16u) * (y >> 16u) + (cross >> 16u) + (other >> 16u) + (middle >> 16u);
}
fn word_at(position: u32) -> u32 {
  var words = TURNS;
  let k = position >> 5u;
  let inside = position & 31u;
  if (inside == 0u) { return words[k]; }
  return (words[k] << inside) | (words[k + 1u] >> (32u - inside));
}
fn turns(p: u32) -> vec2<u32> {
  let m = mantissa(p);
  let position = u32(exponent(p) - 23i + 64i);
  let second = word_at(position + 32u);
  let low = m * second + high_word(m, word_at(position + 64u));
  let carry = select(0u, 1u, low < m * second);
  return vec2(low, m * word_at(position) + high_word(m, second) + carry);
}
fn wave(p: u32, more: u32) -> f32 {
  let t = turns(p);
  let quarter = (t.y + 0x20000000u) >> 30u;
  var rest = vec2(t.x, t.y - (quarter << 30u));
  let is_below = rest.y >= 0x80000000u;
  if (is_below) { rest = rest_of(vec2(0u, 0u), rest); }
  let zeros = select(countLeadingZeros(rest.y), 32u + countLeadingZeros(rest.x), rest.y == 0u);
  if (zeros >= 32u) { rest = vec2(0u, rest.x << (zeros - 32u)); } else if (zeros > 0u) {
    rest = vec2(rest.x << zeros, (rest.y << zeros) | (rest.x >> (32u - zeros)));
  }
  let high = f32(rest.y >> 8u) * float_of((103u - zeros) << 23u);
  let low = f32(((rest.y & 0xffu) << 16u) | (rest.x >> 16u)) * float_of((79u - zeros) << 23u);
  var a = pair_product(vec2(high, low), vec2(6.2831854820251465f, -1.7484555314695172e-7f));
  if (is_below) { a = vec2(negated(a.x), negated(a.y)); }
  let which = (quarter + more) & 3u;
  let z = product(a.x, a.x);
  var size: f32;
  if ((which & 1u) == 0u) {
    let tail = z * (-0.16666667f + z * (0.008333334f + z * (-0.0001984127f + z * 2.7557319e-6f)));
    size = sum(a.x, sum(product(a.x, tail), a.y));
  } else {
    let tail = z * z * (0.041666668f + z * (-0.0013888889f + z * (2.4801587e-5f + z * -2.755732e-7f)));
    size = sum(1.0f, sum(product(-0.5f, z), sum(tail, negated(product(a.x, a.y)))));
  }
  if (which >= 2u) { return negated(size); }
  return size;
}
"""
_SINE = """fn sine(x: f32) -> f32 {
  let p = bitcast<u32>(x) & 0x7fffffffu;
  if (p >= 0x7f800000u) { return float_of(0x7fc00000u); }
  if (p < 0x39800000u) { return sum(x, product(product(x, x), product(x, -0.16666667f))); }
  let size = wave(p, 0u);
  if (bitcast<u32>(x) != p) { return negated(size); }
  return size;
}
"""
_COSINE = """fn cosine(x: f32) -> f32 {
  let p = bitcast<u32>(x) & 0x7fffffffu;
  if (p >= 0x7f800000u) { return float_of(0x7fc00000u); }
  if (p < 0x39800000u) { return sum(1.0f, product(product(x, x), -0.5f)); }
  return wave(p, 1u);
}
"""
# Exact: a long division, eight bits at a time.
_REMAINDER = """fn remainder(x: f32, y: f32) -> f32 {
  let p = bitcast<u32>(x) & 0x7fffffffu;
  let q = bitcast<u32>(y) & 0x7fffffffu;
  let sign = bitcast<u32>(x) & 0x80000000u;
  if (p >= 0x7f800000u || q > 0x7f800000u || q == 0u) { return float_of(0x7fc00000u); }
  if (p < q) { return x; }
  let n = mantissa(q);
  var rest = mantissa(p);
  rest = rest % n;
  for (var left: i32 = exponent(p) - exponent(q); left > 0i; left -= 8i) {
    rest = (rest << u32(min(left, 8i))) % n;
  }
  if (rest == 0u) { return float_of(sign); }
  let spare = countLeadingZeros(rest) - 8u;
  return packed(sign, exponent(q) - i32(spare), rest << (spare + 2u));
}
"""
_POWER = """fn logarithm(p: u32) -> vec2<f32> {
  var e = exponent(p);
  var m = float_of((mantissa(p) & 0x007fffffu) | 0x3f800000u);
  if (m > 1.4142135f) { m = m * 0.5f; e += 1i; }
  let f = sum(m, -1.0f);
  let t = exact_sum(2.0f, f);
  let near = divide(f, t.x);
  let missed = sum(fused(negated(near), t.x, f), negated(product(near, t.y)));
  let s = vec2(near, divide(missed, t.x));
  let z = pair_product(s, s);
  let tail = z.x * z.x * (0.2f + z.x * (0.14285715f + z.x * (0.11111111f + z.x * (0.09090909f + z.x * 0.07692308f))));
  let third = pair_product(z, vec2(0.3333333432674408f, -9.934107758624577e-9f));
  let u = pair_sum(third, vec2(tail, 0.0f));
  let whole = pair_sum(s, pair_product(s, u));
  let l = pair_product(whole, vec2(2.885390043258667f, 3.851926067000022e-8f));
  if (e == 0i) { return l; }
  return pair_sum(vec2(f32(e), 0.0f), l);
}
fn two_to(w: vec2<f32>) -> f32 {
  let n = i32(floor(w.x + 0.5f));
  let f = exact_sum(sum(w.x, -f32(n)), w.y);
  let u = pair_product(f, vec2(0.6931471824645996f, -1.9046542121259336e-9f));
  let v = u.x;
  let tail = v * v * (0.5f + v * (0.16666667f + v * (0.041666668f + v * (0.008333334f + v * (0.0013888889f + v * 0.0001984127f)))));
  let s = exact_sum(1.0f, v);
  let size = sum(s.x, sum(s.y, sum(u.y, tail)));
  let half = n / 2i;
  let scaled = product(size, float_of(u32(half + 127i) << 23u));
  return product(scaled, float_of(u32(n - half + 127i) << 23u));
}
fn power(x: f32, y: f32) -> f32 {
  let p = bitcast<u32>(x) & 0x7fffffffu;
  let q = bitcast<u32>(y) & 0x7fffffffu;
  let is_below = bitcast<u32>(x) != p;
  let is_inverse = bitcast<u32>(y) != q;
  if (q == 0u || bitcast<u32>(x) == 0x3f800000u) { return 1.0f; }
  if (p > 0x7f800000u || q > 0x7f800000u) { return float_of(0x7fc00000u); }
  let is_whole = bitcast<u32>(towards_zero(y)) == bitcast<u32>(y);
  var is_odd = false;
  if (q >= 0x3f800000u && q < 0x4b800000u) {
    is_odd = is_whole && (((mantissa(q) >> u32(23i - exponent(q))) & 1u) == 1u);
  }
  let sign = select(0u, 0x80000000u, is_below && is_odd);
  if (q == 0x7f800000u) {
    if (p == 0x3f800000u) { return 1.0f; }
    return float_of(select(0u, 0x7f800000u, (p > 0x3f800000u) != is_inverse));
  }
  if (p == 0u || p == 0x7f800000u) {
    return float_of(sign | select(0u, 0x7f800000u, (p == 0u) == is_inverse));
  }
  if (is_below && !is_whole) { return float_of(0x7fc00000u); }
  if (p == 0x3f800000u) { return float_of(sign | 0x3f800000u); }
  let l = logarithm(p);
  let about = product(y, l.x);
  if (is_less(200.0f, about)) { return float_of(sign | 0x7f800000u); }
  if (is_less(about, -200.0f)) { return float_of(sign); }
  return float_of(sign | bitcast<u32>(two_to(pair_product(l, vec2(y, 0.0f)))));
}
"""
LOOPS = {Ops.FMOD: 36}  # times that the loops of a function run, at most
_OF_PAIRS = ("sum", "product", "negated", "fused", "pairs")
FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pairs": (_PAIRS, ("sum", "product", "negated", "fused")),
    "angle": (_ANGLE, ("parts", "words", *_OF_PAIRS)),
    "sine": (_SINE, ("angle",)),
    "cosine": (_COSINE, ("angle",)),
    "remainder": (_REMAINDER, ("packed", "parts")),
    "power": (_POWER, (*_OF_PAIRS, "parts", "divide", "towards_zero", "is_less")),
}
