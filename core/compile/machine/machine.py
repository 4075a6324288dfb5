"""What a core and its memory are like, in numbers with units: what every choice of speed is derived from.

Owns: the description, its defaults and their sources. Does not own: what this machine says of itself and what is known
of others (backends/cpu/caches.py, calibration.py, processors.py), what follows for a kernel (cost_model.py).

A number has one of three sources:

- [F] A. Fog, Instruction tables, and The microarchitecture of Intel, AMD and VIA CPUs (https://agner.org/optimize), 2022;
- [I] Intel 64 and IA-32 Architectures Optimization Reference Manual, 2023;
- [M] fitted to the times of whole products, convolutions and sums on Intel's servers (Ice Lake, Sapphire Rapids), whose caches
  and memory are shared with others. What a machine says of each by itself differs, and `python -m proofgrad calibrate` takes the
  default times what was measured here over what was measured on those (backends/cpu/calibration.py).

A default is that of Intel's server cores since 2019 (Ice Lake), where nothing else is said. docs/schedules.md has who asks.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of the second cache of a core [I: server cores since Skylake], where the machine does not say.
SECOND_CACHE_BYTES = 1 << 20
PAGE_BYTES = 1 << 12
# Of a line of a cache on x86 and most ARM cores; so the memory of a buffer, and what threads share, begins with one.
LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class FirstCache:
    """The data cache nearest to a core: bytes, how many lines that share a set it holds, bytes of a line. [I]"""

    nbytes: int = 48 << 10
    ways: int = 12
    line_bytes: int = LINE_BYTES

    @property
    def way_bytes(self) -> int:
        """After so many bytes the sets begin again."""
        return self.nbytes // self.ways


@dataclass(frozen=True, slots=True)
class Core:
    """What a core does in a cycle, and what takes it how many cycles.

    Units: instructions a cycle, cycles an instruction or an element, bytes a cycle, as each name says.
    """

    multiply_adds_a_cycle: int = 2  # of whole vectors [F: two ports]
    unit_bytes: int = 64  # of a vector that an instruction takes whole; of a longer one, halves
    multiply_add_cycles: int = (
        4  # until another instruction can use the result, as of an addition [F]
    )
    loads_a_cycle: int = 2  # of whole vectors, from the first cache [F: ports 2 and 3]
    foreseen_instructions: int = 97  # that wait, while those behind begin [F: the scheduler]
    mask_registers: int = 7  # of lanes to be left out; more are fetched each time [I: k1 to k7]
    translated_pages: int = (
        64  # whose position the first buffer of translations holds [I: 4 KB pages]
    )
    foreseen_pages: int = 32  # that are read at once, and each foreseen [I: 32 streams, one a page]
    foreseen_beyond_pages: bool = False  # what is read in order, where its page ends [M]
    cache_bytes_a_cycle: int = 64  # from the second cache to the first [I]
    memory_bytes_a_cycle: float = 6.0  # from memory, where its reading is foreseen [M]
    memory_line_cycles: float = (
        40.0  # a line from memory, where it is not, among others under way [M]
    )
    gather_cycles: float = 1.5  # to load one element of a vector, whose elements lie apart [M]
    scatter_cycles: float = 1.5  # to store one [M]
    transposed_cycles: float = (
        0.4  # to store, or to load, one of four vectors, transposed in registers [M]
    )
    masked_store_cycles: float = 1.0  # to store the lanes of a vector that a mask says [I]
    copy_cycles: float = (
        1.5  # to copy 4 bytes into a table, in the order of both, past the second cache [M]
    )
    copy_apart_cycles: float = 3.5  # where elements of the table lie apart in memory [M]
    launch_cycles: int = 2048  # to start one more kernel [M]
    share_cycles: int = (
        2048  # to hand parts of a kernel to threads that spin, and wait for them [M]
    )
    wake_cycles: int = 12_500  # the same on average, with threads that sleep now and then [M]

    @property
    def sums_at_once(self) -> int:
        """So many sums go on side by side that none waits for itself."""
        return self.multiply_adds_a_cycle * self.multiply_add_cycles
