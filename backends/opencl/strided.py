"""OpenCL C for vectors whose lanes lie a few elements apart: read as whole vectors, and picked out of them.

    x[0], x[2], x[4], x[6]    =    lanes 0 and 2 of x[0 : 4], lanes 1 and 3 of x[3 : 7]

Owns: which vectors, and the text that picks. Does not own: other accesses, and masks (vector_memory.py).

The last of the vectors ends with the last element that is wanted, so that nothing is read outside of what is. A compiler makes
shuffles of it; of lanes that are read one by one it makes as many instructions as there are lanes, twice.
"""

from __future__ import annotations

from collections.abc import Sequence

# A vector that is read gives so many lanes, at least: fewer are as soon read one by one.
LEAST_PICKED = 2


def step_of(offsets: Sequence[int]) -> int:
    """How many elements it is from each lane to the next; 0: not as many for all."""
    steps = {other - one for one, other in zip(offsets, offsets[1:])}
    return steps.pop() if len(steps) == 1 else 0


def is_read_whole(step: int, lanes: int) -> bool:
    """Whether lanes so far apart are sooner picked out of whole vectors."""
    return 0 < LEAST_PICKED * abs(step) <= lanes


def picked(step: int, lanes: int, vector: str, packed: str) -> str:
    """The body of a function that reads lanes from `p` on: `packed` is the type of a pointer to a `vector` that begins anywhere."""
    wanted = [step * k - min(0, step * (lanes - 1)) for k in range(lanes)]
    lowest, last = min(0, step * (lanes - 1)), max(wanted)
    starts = [*range(0, last + 1 - lanes, lanes), last + 1 - lanes]
    reads = [
        f"  {vector} v{k} = (({packed})(p + {s + lowest}))->v;\n" for k, s in enumerate(starts)
    ]
    own = [next(k for k, start in enumerate(starts) if at < start + lanes) for at in wanted]
    chosen = [f"v{k}.s{at - starts[k]:x}" for k, at in zip(own, wanted)]
    return f"{''.join(reads)}  return ({vector})({', '.join(chosen)});"
