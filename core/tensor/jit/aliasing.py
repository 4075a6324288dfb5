"""Which Tensors of a call are one and the same: what a recording was made for, and what a call has.

Owns: the question whether a recording gives for some arguments what its function would. Does not own:
recording (jit.py), running (replay.py).

A Tensor names a value, so it does not matter who shares memory with whom. It matters which arguments are
one object, which of them the function also knows by a name of its own, and through which it writes to the
Tensors that they are views of. A recording is right for calls that are like its own in this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from proofgrad.core.tensor.methods.base import Link, TensorBase, alive_links

if TYPE_CHECKING:
    from proofgrad.core.tensor.jit.live_tensors import Source
    from proofgrad.core.tensor.tensor import Tensor


class Outdated(Exception):  # noqa: N818  (no error: the function is recorded again)
    """What a recording reads is no longer what it was made for. Raised before anything is changed."""


class OtherGradients(Outdated):
    """`backward` would give gradients to other Tensors: which have one by then, an ordinary call is to say."""


@dataclass(frozen=True, slots=True)
class Step:
    """A link of a view, with the Tensor below it as an argument's or a result's number, or itself."""

    argument: int | None
    result: int | None
    link: Link

    @staticmethod
    def of(
        link: Link, arguments: Sequence[TensorBase], results: Sequence[TensorBase | None] = ()
    ) -> Step:
        """`link`, with the Tensor below it given by its number among arguments and results, if it is one of them."""
        below = link.tensor()
        return Step(_position(below, arguments), _position(below, results), link)

    def is_like(self, link: Link, arguments: Sequence[TensorBase]) -> bool:
        """Is this link the same, with the Tensor in the same position?"""
        below = self.link.tensor() if self.argument is None else arguments[self.argument]
        return link.tensor() is below and link[1:] == self.link[1:]

    def again(self, arguments: Sequence[TensorBase], results: Sequence[Any]) -> Link:
        """The link for the arguments and results of another call."""
        if self.argument is not None:
            return self.link._replace(tensor=ref(arguments[self.argument]))
        if self.result is not None:
            return self.link._replace(tensor=ref(results[self.result]))
        return self.link


class Aliases:
    """The relations of a recording's Tensors."""

    __slots__ = (
        "_first",
        "_gradients",
        "_is_of_values",
        "_known",
        "_objects",
        "_unknown",
        "_views",
    )

    def __init__(
        self,
        arguments: Sequence[Tensor],
        known: Iterable[Source],
        written: Iterable[tuple[Tensor, Source]],
        has_effects: bool,
    ) -> None:
        """`known`: what the function reads, writes or gives, arguments or not; `written` is part of it."""
        self._objects = [ref(one) for one in arguments]
        self._first = _first_positions(arguments)
        sources = list(known)
        self._known = {id(s.tensor()) for s in sources if s.tensor is not None}
        self._gradients = [source for source in sources if source.gradient]
        self._is_of_values = not has_effects and self._first == tuple(range(len(arguments)))
        self._unknown = False
        self._views = {
            source.argument: _steps(tensor, arguments)
            for tensor, source in written
            if source.argument is not None and not source.gradient
        }

    def compare(self, before: Aliases) -> None:
        """Learn from an earlier recording, for other arguments, what the function does not know.

        It reads and writes the same Tensors by name at each call. What was neither among those of the
        other recording nor among its arguments is known to this one as an argument only.
        """
        others = before._known | {id(one) for ref in before._objects if (one := ref()) is not None}
        self._unknown = others.isdisjoint([id(one()) for one in self._objects])

    def is_value(self, argument: int, one: Tensor) -> bool:
        """Whether `one`, as that argument of a call, is its value and nothing more to the function, whatever the others are."""
        if not self._is_of_values:
            return False
        recorded = self._objects[argument]()
        return self._unknown or recorded is one or recorded is None

    def allow(self, arguments: Sequence[Tensor]) -> bool:
        """Does a replay for these arguments give what the function would?"""
        others = [one() for one in self._objects]
        if not self._unknown:
            for one, other in zip(arguments, others):
                if one is not other and other is not None:  # the function may know it by name
                    return False
        if self._is_of_values:
            return True
        if _first_positions(arguments) != self._first:
            return False
        for one, other in zip(arguments, others):
            if one is not other and id(one) in self._known:
                return False
        for source in self._gradients:
            gradient = source.get(arguments)
            if any(one is gradient and one is not other for one, other in zip(arguments, others)):
                return False
        return all(_are_like(arguments[k], steps, arguments) for k, steps in self._views.items())


def steps_of_view(
    tensor: TensorBase, arguments: Sequence[TensorBase], results: Sequence[TensorBase | None]
) -> list[Step]:
    """How `tensor` is a view of Tensors that there still are."""
    return [Step.of(link, arguments, results) for link in alive_links(tensor)]


def base_again(
    steps: Sequence[Step], arguments: Sequence[TensorBase], results: Sequence[Any]
) -> tuple[Link, ...]:
    """What a result is a view of, for the arguments and results of another call.

    Below the first Tensor that is none of the results it is a view of what that one is.
    """
    links = []
    for step in steps:
        link = step.again(arguments, results)
        links.append(link)
        below = link.tensor()
        if step.result is None and below is not None:
            return (*links, *(below._base or ()))
    return tuple(links)


def _steps(tensor: TensorBase, arguments: Sequence[TensorBase]) -> list[Step]:
    return steps_of_view(tensor, arguments, ())


def _are_like(tensor: TensorBase, steps: Sequence[Step], arguments: Sequence[TensorBase]) -> bool:
    links = alive_links(tensor)
    return len(links) == len(steps) and all(
        step.is_like(link, arguments) for step, link in zip(steps, links)
    )


def _position(tensor: TensorBase | None, among: Sequence[TensorBase | None]) -> int | None:
    found = [k for k, one in enumerate(among) if one is tensor] if tensor is not None else []
    return found[0] if found else None


def _first_positions(arguments: Sequence[TensorBase]) -> tuple[int, ...]:
    """For each argument the first that is the same object."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(one), k) for k, one in enumerate(arguments)])
