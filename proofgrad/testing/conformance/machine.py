"""Checks of the machine itself: memory, handles, threads, what is recorded and replayed, sizes that are variables.

Owns: these programs. Each must give exact values, whatever was launched before and has not run yet.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from proofgrad import Device, Tensor, TinyJit, Variable, dtypes
from proofgrad.core.compile.machine.target import Target
from proofgrad.testing.conformance.check import Action, Check, Item, Options, Result, Skip

MORE_THAN_THERE_IS = 1 << 55  # bytes
CYCLED_BYTES = 1 << 30  # taken and dropped, one after the other, where there is the time


def memory(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Bytes in and out, of sizes around those that machines round to, and of some that are copied in pieces."""
    for size in (1, 3, 64, 4095, 4097):
        data = bytes((k * 7 + size) % 256 for k in range(size))
        yield Result(f"{size} bytes", Tensor(data, device).contiguous(), list(data))

    def there_and_back(size: int) -> None:
        data = (bytes(range(251)) * (size // 251 + 1))[:size]
        handle = Device[device].alloc(size)
        given = bytearray(data)
        Device[device].copyin(handle, memoryview(given))
        given[:] = bytes(size)  # which the machine must not see any more
        found = _read(device, handle, size)
        wrong = sum([a != b for a, b in zip(found, data, strict=True)]) if found != data else 0
        _expect(not wrong, f"{wrong} of {size} bytes differ")

    for size in (1, (1 << 20) + 1, 5 << 20):
        yield Action(f"{size} bytes there and back", partial(there_and_back, size))


def handles(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Memory keeps its content while its handle lives, and no longer than that."""
    backend = Device[device]

    def neighbours() -> None:
        first, second, third = [backend.alloc(1024) for _ in range(3)]
        for k, handle in enumerate((first, second, third)):
            backend.copyin(handle, memoryview(bytes([k + 1]) * 1024))
        del second
        fourth = backend.alloc(1024)
        backend.copyin(fourth, memoryview(b"\x09" * 1024))
        for handle, content in ((first, 1), (third, 3), (fourth, 9)):
            _expect(
                _read(device, handle, 1024) == bytes([content]) * 1024, "memory was written over"
            )

    def dropped_before_it_ran() -> None:
        x = Tensor([float(k) for k in range(1000)], device).realize()
        y = (x + 1).realize()
        del x
        z = (y * 2).realize()
        del y
        noise = [Tensor([9.0] * 1000, device).realize() for _ in range(4)]
        _expect(z.tolist() == [2.0 * (k + 1) for k in range(1000)], "an input was freed too early")
        del noise

    def dropped_elsewhere() -> None:
        held = [Tensor([1.0, 2.0], device).realize()]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        _expect((Tensor([1.0], device) + 1).tolist() == [2.0], "a kernel went wrong afterwards")

    def cycled() -> None:
        nbytes = 1 << 26
        for k in range(CYCLED_BYTES // nbytes if options.is_long else 8):
            handle = backend.alloc(nbytes)
            backend.copyin(handle, memoryview(bytes([k % 256])))
            del handle

    yield Action("neighbours", neighbours)
    yield Action("inputs that are dropped before a kernel ran", dropped_before_it_ran)
    yield Action("a handle that another thread drops", dropped_elsewhere)
    yield Action("memory taken and dropped again and again", cycled)


def out_of_memory(device: str, target: Target, options: Options) -> Iterator[Item]:
    """More than there is is a MemoryError with the size, and nothing is lost."""

    def too_much() -> None:
        kept = Tensor([1.0, 2.0, 3.0], device).realize()
        for _ in range(2):
            try:
                Device[device].alloc(MORE_THAN_THERE_IS)
            except MemoryError as error:
                told = str(error)
                _expect(str(MORE_THAN_THERE_IS) in told, f"the message has no size: {told!r}")
            else:
                raise AssertionError(f"{MORE_THAN_THERE_IS} bytes were given")
        gc.collect()
        _expect((kept + 1).tolist() == [2.0, 3.0, 4.0], "a value was lost")

    yield Action("more than there is", too_much)


def threads(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Several threads compile and run kernels, the same and others, and each gets its own values."""

    def work(seed: int) -> None:
        for k in range(10):
            x = Tensor([float(seed * 100 + k)] * 50, device)
            _expect((x * 2 + 1).tolist() == [2.0 * (seed * 100 + k) + 1] * 50, f"thread {seed}")
        own = Tensor([1.0] * (3 + seed), device)
        _expect((own + seed).sum().item() == (1.0 + seed) * (3 + seed), f"thread {seed}")

    def together() -> None:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(work, range(4)):
                pass

    yield Action("four threads", together)


def replay(device: str, target: Target, options: Options) -> Iterator[Item]:
    """A recorded function on new values, in place, in turn with others."""

    def new_values() -> None:
        @TinyJit
        def step(x: Tensor) -> Tensor:
            y = (x * 2).contiguous()
            return (y.sum() + y.contiguous() + 1).realize()

        for k in range(6):
            values = [float(k), 1.0, -2.0]
            expected = [2 * v + 2 * sum(values) + 1 for v in values]
            found = step(Tensor(values, device).realize()).tolist()
            _expect(found == expected, f"call {k}: {found} instead of {expected}")

    def in_place() -> None:
        state = Tensor([1.0, 2.0], device).contiguous().realize()

        @TinyJit
        def step() -> Tensor:
            state.assign((state * 2).contiguous() + 1)
            return (state.sum() + 0).realize()

        found = [step().item() for _ in range(5)]
        _expect(found == [8.0, 18.0, 38.0, 78.0, 158.0], f"{found}")

    def results_are_kept() -> None:
        step = TinyJit(lambda x: (x.contiguous() + 1).realize())
        kept = [step(Tensor([float(k)] * 4, device).realize()) for k in range(6)]
        found = [tensor.tolist() for tensor in kept]
        _expect(found == [[k + 1.0] * 4 for k in range(6)], f"results share memory: {found}")

    yield Action("new values", new_values)
    yield Action("in place", in_place)
    yield Action("results that are kept", results_are_kept)


def assign(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Writing to a Tensor and to a part of it, also from its own elements."""

    def whole() -> None:
        x = Tensor([1.0, 2.0, 3.0, 4.0], device).contiguous().realize()
        x.assign(x.flip(0) + x)
        _expect(x.tolist() == [5.0, 5.0, 5.0, 5.0], f"{x.tolist()}")

    def part() -> None:
        x = Tensor.zeros(4, 3, device=device).contiguous().realize()
        x[1:3] = Tensor([[1.0, 2.0, 3.0]], device)
        x[:, 0] += 1
        expected = [[1.0, 0, 0], [2.0, 2, 3], [2.0, 2, 3], [1.0, 0, 0]]
        _expect(x.tolist() == expected, f"{x.tolist()}")

    def old_values_stay() -> None:
        x = Tensor([1.0, 2.0], device).contiguous().realize()
        before = (x * 10).realize()
        x.assign(x + 1).realize()
        _expect((before.tolist(), x.tolist()) == ([10.0, 20.0], [2.0, 3.0]), "an old value changed")

    yield Action("whole", whole)
    yield Action("a part", part)
    yield Action("what was read before", old_values_stay)


def variables(device: str, target: Target, options: Options) -> Iterator[Item]:
    """One kernel for many sizes."""

    def sizes() -> None:
        n = Variable("n", 1, 16)
        x = Tensor([float(k) for k in range(32)], device).reshape(2, 16).realize()
        for size in (1, 5, 16, 7):
            found = x[:, : n.bind(size)].sum(1).tolist()
            rows = [[float(16 * row + k) for k in range(size)] for row in range(2)]
            _expect(found == [sum(row) for row in rows], f"size {size}: {found}")

    yield Action("sizes", sizes)


def copies(device: str, target: Target, options: Options) -> Iterator[Item]:
    """Values move to the host, to other devices and back."""
    values = [k * 0.5 - 3 for k in range(100)]
    if dtypes.float32 not in target.storage:
        yield Skip("copies", "the device has no float32")
        return

    def round_trip() -> None:
        for other in ("CPU", "REFERENCE"):
            back = (Tensor(values, device) + 1).to(other).to(device) - 1
            _expect(back.tolist() == values, f"by way of {other}")

    yield Action("to others and back", round_trip)
    yield Result("from a transposed array", Tensor(values, device).reshape(10, 10).T.contiguous())


def _expect(truth: bool, otherwise: str) -> None:
    """Raises: AssertionError."""
    if not truth:
        raise AssertionError(otherwise)


def _read(device: str, handle: object, nbytes: int) -> bytes:
    data = bytearray(nbytes)
    Device[device].copyout(memoryview(data), handle)
    return bytes(data)


FIRST = (Check("memory", memory),)
CHECKS = (
    Check("copies", copies),
    Check("handles", handles),
    Check("out of memory", out_of_memory),
    Check("threads", threads),
    Check("replay", replay),
    Check("assign", assign),
    Check("variables", variables),
)
