"""The kinds of programs: plain, special values, gradients, writes, recorded functions, variables."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.choosing import basic_index, positions
from proofgrad.testing.fuzz.generate import Builder, finished, forced, grown, length, of, results_of
from proofgrad.testing.fuzz.operation import NothingFits, Operation, Rounding
from proofgrad.testing.fuzz.oracle import Meaningless, Symbol
from proofgrad.testing.fuzz.program import (
    Call,
    Data,
    Program,
    Ref,
    Statement,
    Step,
    Write,
    references,
)
from proofgrad.testing.fuzz.table import TABLE
from proofgrad.testing.fuzz.values import kind_of


def plain(random: Random) -> Program:
    """Any operations on numbers that are mostly exact."""
    builder = Builder(random)
    builder.start(random.randint(1, 4))
    grown(builder, of(lambda o: True), length(random))
    return finished(builder, "plain")


def special(random: Random) -> Program:
    """Operations whose bits are defined, on values at the edges of each type."""
    builder = Builder(random, "special")
    builder.start(random.randint(1, 4))
    exact = of(lambda o: o.is_elementwise and o.rounding is Rounding.EXACT)
    grown(
        builder,
        exact + of(lambda o: o.name in ("reshape", "permute", "flip", "shrink", "pad", "cat")),
        length(random),
    )
    return finished(builder, "special")


def gradient(random: Random) -> Program:
    """The derivative of a weighted sum for some of the leaves."""
    shapes = [small_shape(random) for _ in range(random.randint(1, 3))]
    return differentiated(
        random, "gradient", shapes, of(lambda o: o.is_smooth), random.randint(2, 14)
    )


LAYERS = (
    "conv2d", "conv2d", "conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "dot", "linear", "einsum",
    "__matmul__", "scaled_dot_product_attention", "softmax", "layernorm", "batchnorm", "cross_entropy",
    "relu", "gelu", "silu", "__add__", "__mul__", "__sub__", "pad", "pad", "cat", "reshape", "permute", "flip",
    "mean", "sum", "max", "roll", "__getitem__", "shrink", "interpolate", "unfold", "expand", "cumsum", "repeat",
)  # fmt: skip


def layers(random: Random) -> Program:
    """Convolutions, products, norms and what stands between them, and mostly their gradients."""
    sizes = (1, 1, 2, 3, 5, 6, 7, 9, 13)
    shape = (
        random.choice([1, 1, 2, 3]),
        random.choice([1, 1, 2, 3, 8, 16]),
        *[random.choice(sizes) for _ in range(random.choice([1, 2, 2, 2]))],
    )
    if int(np.prod(shape)) > 600:
        raise NothingFits
    shapes = [shape, *[small_shape(random) for _ in range(random.randint(0, 1))]]
    made = differentiated(
        random, "layers", shapes, [TABLE[name] for name in LAYERS], random.randint(1, 8)
    )
    return made if random.random() < 0.8 else made.with_(gradient_of=(), weights=())


def differentiated(
    random: Random,
    kind: str,
    shapes: list[tuple[int, ...]],
    operations: list[Operation],
    count: int,
) -> Program:
    """A program whose results are summed with weights and differentiated for up to three leaves. Raises: NothingFits."""
    dtype = random.choice(["float64", "float32"])
    builder = Builder(random, random.choice(["smooth", "smooth", "plain"]), (dtype,))
    builder.most = 400 if kind == "gradient" else 2000
    first = [builder.leaf(dtype, shape).number for shape in shapes]
    grown(builder, operations, count)
    first += [s.target for s in builder.leaves if isinstance(s, Step) and s.target not in first and s.operands[0].dtype == dtype]  # fmt: skip
    results = differentiable(builder, first)
    weights = []
    for ref in results:
        value = builder.value(ref)
        weights.append(Data(dtype, value.shape, tuple([random.choice([0.5, 1.0, -1.0, 2.0, 0.25]) for _ in range(value.size)])))  # fmt: skip
    reached = reached_from(results, [*builder.leaves, *builder.statements])
    targets = tuple([Ref(n) for n in first if n in reached and builder.value(Ref(n)).size][:3])
    if not targets:
        raise NothingFits
    return finished(builder, kind, results=results, weights=tuple(weights), gradient_of=targets)


def small_shape(random: Random) -> tuple[int, ...]:
    """One to four axes, 24 elements at most: each costs two evaluations of the program."""
    while True:
        shape = tuple(
            [random.choice([1, 2, 3, 4, 5, 7]) for _ in range(random.choice([1, 2, 2, 3, 4]))]
        )
        if int(np.prod(shape)) <= 24:
            return shape


def differentiable(builder: Builder, leaves: list[int]) -> tuple[Ref, ...]:
    """The last floats that the leaves reach."""
    found = []
    for statement in reversed(builder.statements):
        if (
            not isinstance(statement, Step)
            or kind_of(builder.value(Ref(statement.target)).dtype) != "float"
        ):
            continue
        if builder.value(Ref(statement.target)).dtype in ("float16", "bfloat16"):
            continue
        if reached_from((Ref(statement.target),), builder.statements) & set(leaves):
            found.append(Ref(statement.target))
    if not found:
        raise NothingFits
    return tuple(found[: builder.random.choice([1, 1, 2])])


def reached_from(results: tuple[Ref, ...], statements: list[Statement]) -> set[int]:
    """The numbers of all that the results are computed from."""
    wanted = {ref.number for ref in results}
    for statement in reversed(statements):
        if isinstance(statement, Step) and statement.target in wanted:
            wanted |= set(references(statement))
    return wanted


LONG = (
    "sum", "sum", "max", "min", "mean", "argmax", "any", "all", "cumsum", "cummax", "sort", "argsort", "topk",
    "softmax", "logsumexp", "var", "prod", "permute", "flip", "roll", "pad", "cat", "reshape", "__getitem__",
    "__getitem__", "gather", "scatter_reduce", "scatter", "where", "__add__", "__mul__", "__lt__", "cast", "relu",
    "__matmul__", "dot", "transpose", "repeat", "expand", "masked_select", "nonzero", "avg_pool2d", "max_pool2d",
)  # fmt: skip


def large(random: Random) -> Program:
    """Few operations on many elements: what is split, sorted by a network, or shared by threads."""
    builder = Builder(random)
    builder.most, builder.limit = 200_000, 200_000
    for _ in range(random.randint(1, 2)):
        shape = random.choice(
            [
                (70_001,),
                (4099,),
                (9001,),
                (300, 257),
                (2, 33_000),
                (33_000, 3),
                (17, 64, 65),
                (1, 5000),
                (129, 128),
            ]
        )
        dtype = random.choice(["int32", "int32", "float32", "float32", "float64", "int64"])
        line = builder._add(
            Step(builder._next(), "arange", (0, int(np.prod(shape)), 1), (("dtype", dtype),)),
            builder.statements,
        )
        numbers = builder.step(
            "__sub__", builder.step("__mod__", line, random.choice([7, 5, 11, 13])), 3
        )
        builder.pool = [n for n in builder.pool if n not in (line.number, numbers.number - 1)]
        builder.step("reshape", numbers, shape)
    grown(builder, [TABLE[name] for name in LONG], random.randint(1, 5))
    made = finished(builder, "large")
    is_interpreted = ("DEV", "REFERENCE") in made.settings
    return made.with_(settings=()) if is_interpreted else made


# -- writes -----------------------------------------------------------------------------------------

IN_PLACE = (
    "__iadd__",
    "__isub__",
    "__imul__",
    "__iand__",
    "__ior__",
    "__ixor__",
    "__ifloordiv__",
    "__imod__",
)


def drawn_write(builder: Builder, targets: list[int]) -> Write:
    """A write to one of the names. Raises: NothingFits."""
    random = builder.random
    target = Ref(random.choice(targets))
    cell = builder.machine.names[target.number]
    value = builder.value(target)
    if not cell.is_memory or value.dtype.startswith("fp8"):
        raise NothingFits
    if random.random() < 0.4 and value.shape:
        index: Any = basic_index(builder, value.shape)
        if random.random() < 0.25:
            index = (positions(builder, value.shape[0], (random.randint(1, 3),)),)
        return Write(target, "__setitem__", _given(builder, target), index)
    if random.random() < 0.5:
        return Write(target, "assign", _given(builder, target, is_whole=True))
    name = random.choice(IN_PLACE)
    if kind_of(value.dtype) == "float" and name in ("__iand__", "__ior__", "__ixor__"):
        raise NothingFits
    if kind_of(value.dtype) == "bool" and name in ("__isub__", "__ifloordiv__", "__imod__"):
        raise NothingFits
    number = builder.number(value.dtype)
    if isinstance(number, float) and kind_of(value.dtype) == "int":
        raise NothingFits
    return Write(target, name, builder.like(target) if random.random() < 0.5 else number)


def _given(builder: Builder, target: Ref, is_whole: bool = False) -> Any:
    value = builder.value(target)
    if builder.random.random() < 0.35:
        return builder.number(value.dtype)
    if is_whole:
        return builder.like(target)
    shape = value.shape[builder.random.randint(0, len(value.shape)) :]
    return builder.like(target, tuple([1 if builder.random.random() < 0.3 else n for n in shape]))


def add_write(builder: Builder, targets: list[int], into: list[Statement]) -> None:
    """Draw a write to one of `targets` and add it to `into`; one without a meaning is left out."""
    builder._into = into
    before = builder._state()
    cells = {n: (c, c.value) for n, c in builder.machine.names.items()}
    try:
        with np.errstate(all="ignore"):
            write = drawn_write(builder, targets)
            builder.machine.run(write)
        into.append(write)
    except (NothingFits, Meaningless, ValueError, IndexError, TypeError):
        builder._undo(before)
        for cell, value in cells.values():
            cell.value = value


def writes(random: Random) -> Program:
    """Views and writes; every name is looked at in the end."""
    builder = Builder(
        random, types=("float32", "float32", "int32", "int64", "bool", "uint8", "float16")
    )
    builder.start(random.randint(2, 4))
    views = of(lambda o: o.is_view)
    simple = of(lambda o: o.is_elementwise) + of(
        lambda o: o.name in ("sum", "cat", "roll", "pad", "repeat", "stack", "max")
    )
    for _ in range(length(random) // 2 + 3):
        match random.randrange(4):
            case 0:
                builder.grow(views)
            case 1:
                builder.grow(simple)
            case _:
                add_write(builder, builder.pool, builder.statements)
    names = [s.target for s in (*builder.leaves, *builder.statements) if isinstance(s, Step)]
    return finished(builder, "writes", results=tuple([Ref(n) for n in names]))


# -- recorded functions -----------------------------------------------------------------------------


def recorded(random: Random) -> Program:
    """A function that is recorded and replayed, with arguments that may be one Tensor, or its views."""
    builder = Builder(random, types=("float32",) * 3 + ("int32",))
    shape, dtype = small_shape(random), random.choice(["float32", "float32", "int32"])
    arguments = [builder.leaf(dtype, shape).number for _ in range(random.randint(2, 4))]
    wide = (3, *shape)
    if random.random() < 0.6:
        whole = builder.leaf(dtype, wide)
        arguments += [
            builder._add(
                Step(builder._next(), "__getitem__", (whole, (k,))), builder.statements
            ).number
            for k in range(3)
        ]
    closed = [builder.leaf(dtype, shape).number for _ in range(random.randint(1, 2))]
    setup = list(builder.statements)
    made = list(builder.pool)
    parameters = tuple([builder._next() for _ in range(random.randint(1, 2))])
    for number in parameters:
        builder.machine.names[number] = builder.machine.names[arguments[0]]
    builder.pool = [*closed, *parameters]
    body: list[Statement] = []
    simple = (
        of(lambda o: o.is_elementwise)
        + of(lambda o: o.is_view)
        + of(
            lambda o: (
                o.name
                in ("sum", "cat", "roll", "pad", "max", "__matmul__", "softmax", "cumsum", "mean")
            )
        )
    )
    simple = [o for o in simple if o.name not in ("masked_select", "nonzero")]
    is_writing = random.random() < 0.7
    for _ in range(random.randint(2, 10)):
        if is_writing and random.random() < 0.4:
            targets = [*closed, *parameters] if random.random() < 0.8 else builder.pool
            add_write(builder, targets, body)
        else:
            builder.grow(simple, body)
    new = [s.target for s in body if isinstance(s, Step)]
    if not new:
        raise NothingFits
    results = results_of(builder, body)
    calls = tuple(
        [
            Call(tuple([Ref(random.choice(arguments)) for _ in parameters]))
            for _ in range(random.randint(3, 6))
        ]
    )
    statements = (*builder.leaves, *setup)
    assert made
    return Program(
        "recorded",
        statements,
        results,
        forced(random),
        parameters=parameters,
        body=tuple(body),
        calls=calls,
    )


# -- variables --------------------------------------------------------------------------------------


def variable(random: Random) -> Program:
    """An axis whose size is a Variable: several values, one kernel."""
    builder = Builder(random, types=("float32", "float32", "int32", "float64"))
    bound = random.choice([6, 7, 8, 13])
    others = tuple([random.choice([1, 2, 3, 4]) for _ in range(random.choice([0, 1, 1, 2]))])
    axis = random.randint(0, len(others))
    shape = (*others[:axis], bound, *others[axis:])
    dtype = random.choice(builder.types)
    builder.machine.size = random.randint(5, bound)  # unlike the other sizes
    cut = (*[slice(None)] * axis, slice(None, Symbol()))
    for _ in range(random.randint(1, 2)):
        whole = builder.leaf(dtype, shape)
        builder._add(Step(builder._next(), "__getitem__", (whole, cut)), builder.statements)
    builder.pool = [s.target for s in builder.statements if isinstance(s, Step)]
    builder.is_same_shape = True

    def fits(operation: Operation) -> bool:
        return (
            operation.is_elementwise
            or operation.takes_variables
            and operation.name != "__getitem__"
        )

    kept = of(
        lambda o: (
            fits(o)
            and o.name not in ("where", "masked_fill", "cast", "__matmul__")
            and "shift" not in o.name
        )
    )
    grown(builder, kept, random.randint(2, 8))
    sizes = tuple([random.randint(1, bound) for _ in range(random.randint(2, 4))])
    return Program("variable", (*builder.leaves, *builder.statements), results_of(builder, builder.statements),
                   forced(random), sizes=sizes, bound=bound)  # fmt: skip


KINDS: dict[str, tuple[Callable[[Random], Program], int]] = {
    "plain": (plain, 34),
    "special": (special, 10),
    "gradient": (gradient, 16),
    "layers": (layers, 14),
    "large": (large, 4),
    "writes": (writes, 12),
    "recorded": (recorded, 12),
    "variable": (variable, 6),
}


def program(seed: int, number: int, kind: str | None = None) -> Program:
    """Program number `number` of a seed: always the same."""
    random = Random(f"{seed} {number}")
    names = list(KINDS)
    while True:
        chosen = kind or random.choices(names, [KINDS[name][1] for name in names])[0]
        try:
            made = KINDS[chosen][0](random)
        except NothingFits:
            continue
        if made.results:
            return made.with_(note=f"--seed {seed}, program {number}")
