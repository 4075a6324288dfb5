"""Which OpenCL device is used: the first that has what IEEE arithmetic needs and computes a small kernel rightly.

Owns: the demands, the trial, what is said of devices that are passed over. Does not own: what is done with the one (runtime.py).

A driver can list a device for which it cannot compile, as PoCL does on processors newer than its LLVM; so each is tried.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from typing import Any

from proofgrad.backends.opencl.wheels import not_loaded
from proofgrad.core.compile.machine.target import DeviceError

# Uses what kernels use: numbers of items, a function, a quotient, a loop, the longest vectors. Functions of these PoCL calls with
# other registers than it compiled them for, where its LLVM takes the processor for an older one.
TRIAL = """kernel void trial(global const float *in, global float *out) {
  int i = (int)get_global_id(0);
  float total = 0.0f;
  for (int k = 0; k <= i; k++) total = fma(in[k], 2.0f, total);
  float lanes[16];
  float16 three = (float16)(3.0f), none = (float16)(0.0f);
  vstore16(fma(fabs(vload16(i / 16, in)), three, none), 0, lanes);
  out[i] = sqrt(total) + lanes[i % 16] / 9.0f;
}"""
ITEMS = 64
MOST_TOLD = 400  # letters of an error
# Of devices that computed the trial, for who uses one: with its last context PoCL forgets its library of functions, and the
# next first kernel takes 0.3 s more.
_contexts: dict[int, tuple[Any, Any]] = {}  # by id: the device, which is held, and its context
_CLOSE = 1e-5  # of a device that rounds quotients less exactly


def choose_device(cl: Any, number: int = 0) -> tuple[Any, list[str]]:
    """The usable device with this number, and why those before it are not used. Raises: DeviceError, with all that."""
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
            lacks = _lacks(cl, device) or _refusal(cl, device)
            if lacks:
                refused.append(f"{device.name.strip()} lacks {', '.join(lacks)}")
            elif usable == number:
                return device, refused
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


def _refusal(cl: Any, device: Any) -> list[str]:
    """What is wrong with a device that does not compute the trial; nothing if it does."""
    import numpy

    given = numpy.arange(ITEMS, dtype=numpy.float32)
    result = numpy.zeros(ITEMS, numpy.float32)
    try:
        context = cl.Context([device])
        _contexts[id(device)] = (device, context)
        queue = cl.CommandQueue(context)
        program = cl.Program(context, TRIAL)
        with warnings.catch_warnings():  # some compilers always say something
            warnings.simplefilter("ignore")
            program.build(["-w"], cache_dir=False)
        memory = [cl.Buffer(context, cl.mem_flags.READ_WRITE, ITEMS * 4) for _ in range(2)]
        cl.enqueue_copy(queue, memory[0], given, is_blocking=True)
        kernel = cl.Kernel(program, "trial")
        kernel.set_args(*memory)
        cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), None)
        cl.enqueue_copy(queue, result, memory[1], is_blocking=True)
    except cl.Error as error:
        _hold(_contexts.pop(id(device), None))
        told = " ".join(str(error).split())
        return [f"a driver that compiles and runs kernels for it ({told[:MOST_TOLD]})"]
    expected = [math.sqrt(k * (k + 1)) + k / 3 for k in range(ITEMS)]
    wrong = [k for k in range(ITEMS) if not abs(result[k] - expected[k]) <= _CLOSE * expected[k]]
    if wrong:
        _hold(_contexts.pop(id(device), None))
        k = wrong[0]
        return [
            f"a driver that computes rightly (it gives {result[k]} instead of {expected[k]:.7g})"
        ]
    return []


def _hold(refused: tuple[Any, Any] | None) -> None:
    """Let nobody release a device's context: PoCL ends the process with that of a program that it failed to compile."""
    if refused is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(refused[1]))
