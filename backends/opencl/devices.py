"""Which OpenCL device is used: the first that has what IEEE arithmetic needs and computes a small kernel rightly.

Owns: the demands, the trial, how wide a vector its functions are given, what is said of devices that are passed over. Does not
own: what is done with the one (runtime.py).

A driver can list a device for which it cannot compile, as PoCL does on processors newer than its LLVM; so each is tried.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from dataclasses import dataclass
from typing import Any

from proofgrad.backends.opencl.wheels import not_loaded
from proofgrad.core.compile.machine.target import DeviceError

# Uses what kernels use: numbers of items, a function, a quotient, a loop, the longest vectors. PoCL's functions of these are
# compiled for the processor, and kernels for one that its LLVM knows, which may be an older one: with vectors of fewer bytes. One
# that is wider goes other ways on either side of a call: wrong values, or the end of the process. So the compiler is asked
# what it compiles for, and functions are called with parts of no more than that.
TRIAL = """#if defined(__AVX__) && !defined(__AVX512F__)
#define WIDEST 32
#define CALLED(x) (float16)(fma(fabs(x.lo), (float8)(3.0f), (float8)(0.0f)), fma(fabs(x.hi), (float8)(3.0f), (float8)(0.0f)))
#elif defined(__SSE2__) && !defined(__AVX__)
#define WIDEST 16
#define QUARTER(x) fma(fabs(x), (float4)(3.0f), (float4)(0.0f))
#define CALLED(x) (float16)(QUARTER(x.lo.lo), QUARTER(x.lo.hi), QUARTER(x.hi.lo), QUARTER(x.hi.hi))
#else
#define WIDEST 0
#define CALLED(x) fma(fabs(x), (float16)(3.0f), (float16)(0.0f))
#endif
typedef struct __attribute__((packed, aligned(4))) { float16 v; } anywhere;
kernel void trial(global const float *in, global float *out) {
  int i = (int)get_global_id(0);
  float total = 0.0f;
  for (int k = 0; k <= i; k++) total = fma(in[k], 2.0f, total);
  float lanes[16];
  float16 given = ((global const anywhere *)(in + i / 16 * 16))->v;
  ((private anywhere *)lanes)->v = CALLED(given);
  out[i] = sqrt(total) + lanes[i % 16] / 9.0f;
  if (i == 0) out[get_global_size(0)] = WIDEST;
}"""
ITEMS = 64
MOST_TOLD = 400  # letters of an error
# Of devices that computed the trial, for who uses one: with its last context PoCL forgets its library of functions, and the
# next first kernel takes 0.3 s more.
_contexts: dict[int, tuple[Any, Any]] = {}  # by id: the device, which is held, and its context
_CLOSE = 1e-5  # of a device that rounds quotients less exactly


@dataclass(frozen=True, slots=True)
class Chosen:
    """A device that computed the trial."""

    device: Any
    called_bytes: int  # of a vector that its functions are given, at most; 0: of any
    refused: list[str]  # why those before it are not used


def choose_device(cl: Any, number: int = 0) -> Chosen:
    """The usable device with this number. Raises: DeviceError, with why there is none."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(
            f"no OpenCL driver was found ({'; '.join([str(error), *_of_wheel()])}); install that of your GPU, or PoCL, which runs"
            f' on every CPU: pip install "proofgrad[opencl]"'
        ) from None
    is_listed = any(["Intel" in getattr(platform, "name", "") for platform in platforms])
    refused = [] if is_listed else _of_wheel()
    usable = 0
    for platform in platforms:
        for device in _devices(cl, platform):
            lacks, called_bytes = _lacks(cl, device), 0
            if not lacks:
                lacks, called_bytes = _tried(cl, device)
            if lacks:
                refused.append(f"{device.name.strip()} lacks {', '.join(lacks)}")
            elif usable == number:
                return Chosen(device, called_bytes, refused)
            else:
                usable += 1
    found = "; ".join(refused) or "the drivers list no device"
    if usable:
        names = ", ".join(["CL", *[f"CL:{k}" for k in range(1, usable)]])
        others = f"; {found}" if refused else ""
        raise DeviceError(f"there is no CL:{number}: the usable OpenCL devices are {names}{others}")
    raise DeviceError(
        f"no OpenCL device can be used: {found}; Intel's driver runs on every x86-64 processor:"
        " pip install intel-opencl-rt intel-cmplr-lib-rt"
    )


def _of_wheel() -> list[str]:
    """Why the driver of Intel's wheel is not listed, if there is one."""
    lack = not_loaded()
    return [lack] if lack else []


def context_of(cl: Any, device: Any) -> Any:
    """A context of a device that was chosen: that of its trial, if there was one."""
    found = _contexts.pop(id(device), None)
    return cl.Context([device]) if found is None else found[1]


def rounds_quotients(cl: Any, device: Any) -> bool:
    """Whether quotients and square roots of float32 are promised to be rounded correctly."""
    return bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a platform without a device answers with an error
        return []


def _lacks(cl: Any, device: Any) -> list[str]:
    """What IEEE arithmetic on float32 needs and this device does not have."""
    config = cl.device_fp_config
    needed = {
        config.DENORM: "denormal numbers",
        config.INF_NAN: "infinities and NaN",
        config.ROUND_TO_NEAREST: "rounding to nearest",
    }
    lacks = [words for bit, words in needed.items() if not device.single_fp_config & bit]
    if not rounds_quotients(cl, device) and "cl_khr_fp64" not in device.extensions:
        lacks.append("correctly rounded division, and float64 to have it by")
    return lacks


def _tried(cl: Any, device: Any) -> tuple[list[str], int]:
    """What is wrong with a device that does not compute the trial, nothing if it does; and how many bytes its functions are given."""
    import numpy

    given = numpy.arange(ITEMS, dtype=numpy.float32)
    result = numpy.zeros(ITEMS + 1, numpy.float32)
    try:
        context = cl.Context([device])
        _contexts[id(device)] = (device, context)
        queue = cl.CommandQueue(context)
        program = cl.Program(context, TRIAL)
        with warnings.catch_warnings():  # some compilers always say something
            warnings.simplefilter("ignore")
            program.build(["-w"], cache_dir=False)
        memory = [cl.Buffer(context, cl.mem_flags.READ_WRITE, result.nbytes) for _ in range(2)]
        cl.enqueue_copy(queue, memory[0], given, is_blocking=True)
        kernel = cl.Kernel(program, "trial")
        kernel.set_args(*memory)
        cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), None)
        cl.enqueue_copy(queue, result, memory[1], is_blocking=True)
    except cl.Error as error:
        _hold(_contexts.pop(id(device), None))
        told = " ".join(str(error).split())
        return [f"a driver that compiles and runs kernels for it ({told[:MOST_TOLD]})"], 0
    expected = [math.sqrt(k * (k + 1)) + k / 3 for k in range(ITEMS)]
    wrong = [k for k in range(ITEMS) if not abs(result[k] - expected[k]) <= _CLOSE * expected[k]]
    if wrong:
        _hold(_contexts.pop(id(device), None))
        k = wrong[0]
        gives = f"it gives {result[k]} instead of {expected[k]:.7g}"
        return [f"a driver that computes rightly ({gives})"], 0
    return [], int(result[ITEMS])


def _hold(refused: tuple[Any, Any] | None) -> None:
    """Let nobody release a device's context: PoCL ends the process with that of a program that it failed to compile."""
    if refused is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(refused[1]))
