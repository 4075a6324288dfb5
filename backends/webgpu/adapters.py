"""Which WebGPU device is used, and what of IEEE 754 it keeps.

Owns: finding adapters, the trial. Does not own: what is done with the one (runtime.py).

WGSL lets a device flush denormal numbers and treat NaN, infinities and the sign of zero as it likes. Kernels are printed so
that few devices do (floats.py); what one does is tried when it is opened.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

from proofgrad.backends.webgpu.floats import FUNCTIONS, HIDDEN, NOTHING
from proofgrad.core.compile.machine.target import DeviceError

INSTALL = (
    'pip install "proofgrad[webgpu]", and a driver for Vulkan, Metal or Direct3D 12; lavapipe runs on every processor:'
    " apt-get install mesa-vulkan-drivers"
)
_ORDER = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")
# Of two numbers each: their sum, product, and whether the first is the smaller.
TRIAL = f"""@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> found: array<u32>;
var<private> {NOTHING}: u32;
{HIDDEN}
{FUNCTIONS["sum"][0]}{FUNCTIONS["product"][0]}{FUNCTIONS["is_less"][0]}
@compute @workgroup_size(1)
fn trial(
    @builtin(global_invocation_id) item: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>
) {{
  {NOTHING} = groups.z - 1u;
  let x = float_of(given[2u * item.x]);
  let y = float_of(given[2u * item.x + 1u]);
  found[3u * item.x] = bitcast<u32>(sum(x, y));
  found[3u * item.x + 1u] = bitcast<u32>(product(x, y));
  found[3u * item.x + 2u] = select(0u, 1u, is_less(x, y));
}}
"""
# A loop that the compiler cannot see the end of. llvmpipe of Mesa 22 ends all loops of an item after 65535 turns.
LOOP = """@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> found: array<u32>;
@compute @workgroup_size(1)
fn turns() {
  var count = 0u;
  for (var k = 0u; k < given[0]; k++) { count += given[1u + k % 2u]; }
  found[0] = count;
}
"""
LOOP_TURNS = 1 << 18
FEW_TURNS = 65000  # what a device is trusted with that ends loops early
_TINY = 2.0**-149
_CASES: dict[str, tuple[tuple[float, float], ...]] = {
    "denormal numbers": ((_TINY, 3 * _TINY), (2.0**-130, 0.5), (-_TINY, 0.0), (2.0**-126, 0.25)),
    "infinities": ((math.inf, 1.0), (2.0**127, 2.0**127), (-math.inf, 5.0), (1.0, math.inf)),
    "NaN": ((math.nan, 1.0), (math.inf, -math.inf), (math.inf, 0.0), (math.nan, math.nan)),
    "the sign of zero": ((-0.0, -0.0), (-0.0, 3.0), (0.0, -1.0), (0.0, -0.0)),
}


def import_wgpu() -> Any:
    """The package, for the interfaces that compute. Raises: DeviceError."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native.extras import set_instance_extras
    except ImportError as error:
        raise DeviceError(
            f"WEBGPU needs the package wgpu, which cannot be imported ({error}); run: {INSTALL}"
        ) from None
    # Mesa's layer that orders devices looks for a screen, and complains on stderr where there is none.
    os.environ.setdefault("NODEVICE_SELECT", "1")
    interfaces = ["Vulkan", "Metal", "DX12"]  # OpenGL's lacks what kernels need
    with contextlib.suppress(RuntimeError):  # somebody in this process has used it before
        set_instance_extras(backends=interfaces)
    return wgpu


def choose_adapter(wgpu: Any, number: int) -> Any:
    """The adapter of this number, graphics cards first. Raises: DeviceError, with what there is."""
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
    found.sort(key=lambda a: _ORDER.index(_kind(a)))
    if not found:
        raise DeviceError(f"no WebGPU device was found; install: {INSTALL}")
    if number >= len(found):
        names = ", ".join([f"WEBGPU:{k} {a.info['device']}" for k, a in enumerate(found)])
        raise DeviceError(f"there is no WEBGPU:{number}: the devices are {names}")
    return found[number]


def _kind(adapter: Any) -> str:
    kind = str(adapter.info["adapter_type"])
    return kind if kind in _ORDER else "Unknown"


def cases() -> list[tuple[float, float]]:
    """The pairs that are tried, in order."""
    return [pair for pairs in _CASES.values() for pair in pairs]


def not_kept(found: list[tuple[float, float, int]]) -> tuple[str, ...]:
    """What of IEEE 754 a device does not keep, from what it made of the pairs."""
    results = iter(found)
    lost = []
    for name, pairs in _CASES.items():
        answers = [next(results) for _ in pairs]
        if any(not _is_right(pair, answer) for pair, answer in zip(pairs, answers, strict=True)):
            lost.append(name)
    return tuple(lost)


def _is_right(pair: tuple[float, float], answer: tuple[float, float, int]) -> bool:
    import numpy

    with numpy.errstate(all="ignore"):
        x, y = numpy.float32(pair[0]), numpy.float32(pair[1])
        expected = (x + y, x * y)
    same = [_same(float(a), b) for a, b in zip(expected, answer[:2], strict=True)]
    return all(same) and bool(answer[2]) == (pair[0] < pair[1])


def _same(x: float, y: float) -> bool:
    both_nan = math.isnan(x) and math.isnan(y)
    return both_nan or (x == y and math.copysign(1, x) == math.copysign(1, y))
