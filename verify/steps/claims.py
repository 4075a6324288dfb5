"""What a law claims, decided: by small numbers, which find what is wrong with it, and by the solver for all numbers.

Owns: the two worlds in which a claim is made, their cases, asking z3. Does not own: the claims (laws.py), terms (terms.py).

A claim is a function of a World. It asks for numbers, supposes, and claims. Among small numbers
(`tried`) every choice of them is tried, and what a law says is computed. Among terms (`proved`) the same function is run
once for each way that its branches, and those of the law, can go, and each thing claimed is a goal of z3. What
has been proved on the way may be used for what comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any, Protocol

import z3

from proofgrad.verify.encode.answers import check
from proofgrad.verify.steps.terms import Formula, Known, Term, Truth, applied, power

PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"
SMALL_NUMBERS, RUN = "small numbers", "run"
MOST_STEPS = 20_000_000  # of z3 (half a second), for one goal, in each context that it is asked in
REACH = 3  # small numbers
MOST_CASES = 1_500  # of small numbers in order, then drawn; of branches


class World(Protocol):
    """Where a claim is made."""

    def number(self, name: str, low: Any = None, below: Any = None) -> Any:
        """Any whole number, from `low` on and below `below` where they are given."""

    def suppose(self, truth: Any) -> None:
        """Only where this is so, what follows is claimed."""

    def claim(self, what: str, truth: Any) -> None:
        """This is so."""

    def function(self, name: str) -> Callable[..., Any]:
        """Any function of whole numbers."""

    def real(self, name: str) -> Any:
        """Any real number."""

    def power(self, exponent: Any) -> Any:
        """e(exponent), where e is any function of reals with e(a) * e(b) = e(a + b)."""

    def one_if(self, truth: Any) -> Any:
        """1 where it is so, else 0."""

    def any_of(self, truths: Sequence[Any]) -> Any:
        """Whether one of them is so."""


Claim = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that is claimed, and what became of it. `found`: numbers for which it is wrong."""

    what: str
    verdict: str
    steps: int = 0
    found: str = ""


class _Vain(Exception):
    """What was supposed is not so."""


class _Wrong(Exception):
    """What was claimed is not so."""


@dataclass(slots=True)
class _Script:
    """Choices that were made, and how many there were of each: the next run takes the next ones."""

    taken: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    at: int = 0
    drawn: Random | None = None  # from now on choices are drawn

    def choose(self, count: int) -> int:
        if self.drawn is not None:
            return self.drawn.randrange(count)
        if self.at == len(self.taken):
            self.taken.append(0)
            self.counts.append(count)
        self.at += 1
        return self.taken[self.at - 1]

    def advance(self) -> bool:
        """Whether there is another run."""
        while self.taken and self.taken[-1] + 1 >= self.counts[-1]:
            self.taken.pop()
            self.counts.pop()
        if not self.taken:
            return False
        self.taken[-1] += 1
        self.at = 0
        return True


# -- small numbers --------------------------------------------------------------------------------


class Whole(int):
    """A number, with the operations of terms."""

    def minimum(self, other: int) -> int:
        """The smaller of two numbers."""
        return Whole(min(self, other))

    def maximum(self, other: int) -> int:
        """The larger of two numbers."""
        return Whole(max(self, other))


def _closed(name: str) -> Callable[..., Whole]:
    """An operation of numbers, whose result has `minimum` too."""
    operation = getattr(int, name)
    return lambda self, *others: Whole(operation(self, *others))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod", "neg"):
    setattr(Whole, f"__{_name}__", _closed(f"__{_name}__"))


class Ratio:
    """A real number that is a ratio, with the operations of real terms."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = Fraction(value)

    def __add__(self, other: Any) -> Ratio:
        return Ratio(self.value + _ratio(other))

    def __sub__(self, other: Any) -> Ratio:
        return Ratio(self.value - _ratio(other))

    def __mul__(self, other: Any) -> Ratio:
        return Ratio(self.value * _ratio(other))

    def __le__(self, other: Any) -> bool:
        return self.value <= _ratio(other)

    def __eq__(self, other: object) -> bool:
        return self.value == _ratio(other)

    __hash__ = None  # type: ignore[assignment]

    def maximum(self, other: Any) -> Ratio:
        """The greater of both."""
        return Ratio(max(self.value, _ratio(other)))


def _ratio(number: Any) -> Fraction:
    return number.value if isinstance(number, Ratio) else Fraction(number)


class _Small:
    """Numbers from a few on."""

    def __init__(self, script: _Script) -> None:
        self.script = script
        self.numbers: dict[str, int] = {}
        self.claimed = 0

    def number(self, name: str, low: Any = None, below: Any = None) -> Any:
        first = -REACH if low is None else int(low)
        count = int(below) - first if below is not None else REACH + 1 - min(first, 0)
        if count <= 0:
            raise _Vain
        self.numbers[name] = first + self.script.choose(count)
        return Whole(self.numbers[name])

    def suppose(self, truth: Any) -> None:
        if not truth:
            raise _Vain

    def claim(self, what: str, truth: Any) -> None:
        self.claimed += 1
        if not truth:
            raise _Wrong(what)

    def function(self, name: str) -> Callable[..., Any]:
        def value(*arguments: Any) -> Any:
            known = f"{name}{tuple(map(int, arguments))}"
            if known not in self.numbers:
                self.number(known)
            return Whole(self.numbers[known])

        return value

    def real(self, name: str) -> Any:
        return Ratio(self.number(name))

    def power(self, exponent: Any) -> Any:
        return Ratio(Fraction(2) ** exponent.value)

    def one_if(self, truth: Any) -> Any:
        return Whole(bool(truth))

    def any_of(self, truths: Sequence[Any]) -> Any:
        return any(map(bool, truths))


def tried(claim: Claim) -> Goal:
    """A claim for small numbers: every choice of them in order, as far as there is time for, then some that are drawn.

    Refuted: what is wrong, and for which numbers. Unknown: there are no numbers of which something is claimed.
    `steps` is how often something was claimed. A claim that asks for no numbers is RUN: there is nothing else to decide.
    """
    script, said, goals, has_numbers = _Script(), 0, 0, False
    for case in range(2 * MOST_CASES):
        world = _Small(script)
        try:
            claim(world)
        except _Vain:
            pass
        except _Wrong as wrong:
            return Goal(str(wrong), REFUTED, found=_shown(world.numbers))
        except (ArithmeticError, ValueError, TypeError, LookupError, AssertionError) as error:
            found = f"{_shown(world.numbers)}: {type(error).__name__} {error}"
            return Goal("the law has a value", REFUTED, found=found)
        said += bool(world.claimed)
        goals, has_numbers = goals + world.claimed, has_numbers or bool(world.numbers)
        if script.drawn is None and not script.advance():
            break
        if case == MOST_CASES:
            script.drawn = Random(0)
    what = SMALL_NUMBERS if has_numbers else RUN
    return Goal(what, PROVED if said else UNKNOWN, said if has_numbers else goals)


def _shown(numbers: Mapping[str, int]) -> str:
    return ", ".join([f"{name} = {number}" for name, number in numbers.items()])


# -- terms ----------------------------------------------------------------------------------------


class _Terms:
    """Numbers of which nothing is known but what is supposed."""

    def __init__(self, script: _Script, is_exact: bool) -> None:
        self.script = script
        self.known = Known(self._decide, is_exact)
        self.goals: list[Goal] = []
        self._asked = Asked()
        self._told = 0

    def number(self, name: str, low: Any = None, below: Any = None) -> Any:
        term = self.known.number(name)
        if low is not None:
            self.suppose(term >= low)
        if below is not None:
            self.suppose(term < below)
        return term

    def suppose(self, truth: Any) -> None:
        self._asked.add(_formula_of(truth))

    def claim(self, what: str, truth: Any) -> None:
        formula = _formula_of(truth)
        verdict, steps = self._follows(formula)
        self.goals.append(Goal(what, verdict, steps))
        if verdict != PROVED:
            raise _Wrong(what)
        self._asked.add(formula)

    def function(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: applied(self.known, name, arguments)

    def real(self, name: str) -> Any:
        return self.known.real(name)

    def power(self, exponent: Any) -> Any:
        return power(self.known, exponent)

    def one_if(self, truth: Any) -> Any:
        return Term(self.known, z3.If(_formula_of(truth), z3.IntVal(1), z3.IntVal(0)))

    def any_of(self, truths: Sequence[Any]) -> Any:
        return Truth(self.known, z3.Or([_formula_of(truth) for truth in truths]))

    def _follows(self, formula: Formula) -> tuple[str, int]:
        for fact in self.known.facts[self._told :]:
            self._asked.add(fact)
        self._told = len(self.known.facts)
        return self._asked.follows(formula)

    def _decide(self, formula: Formula) -> bool:
        """How a branch goes here; a way that cannot be is not gone, where z3 sees that."""
        ways = []
        for way in (formula, z3.Not(formula)):
            if self._follows(z3.Not(way))[0] != PROVED:
                ways.append(way)
        if not ways:
            raise _Vain
        way = ways[self.script.choose(len(ways))]
        self._asked.add(way)
        return way is formula


def _formula_of(truth: Any) -> Formula:
    if isinstance(truth, bool):
        return z3.BoolVal(truth)
    if not isinstance(truth, Truth):
        raise TypeError(f"{truth!r} is no formula")
    return truth.formula


def proved(claim: Claim, is_exact: bool = False) -> tuple[Goal, ...]:
    """The goals of a claim in each of its cases; the last one is not proved if the claim is not."""
    script, goals = _Script(), list[Goal]()
    for _ in range(MOST_CASES):
        world = _Terms(script, is_exact)
        try:
            claim(world)
        except _Vain:
            pass
        except _Wrong:
            return (*goals, *world.goals)
        except (ArithmeticError, ValueError, TypeError, LookupError, AssertionError) as error:
            return (*goals, *world.goals, Goal(f"{type(error).__name__}: {error}", UNKNOWN))
        goals += world.goals
        if not script.advance():
            return tuple(goals)
    return (*goals, Goal(f"more than {MOST_CASES} cases", UNKNOWN))


class Asked:
    """What is supposed, told to z3, and what follows from it."""

    def __init__(self) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set(rlimit=MOST_STEPS)

    def add(self, formula: Formula) -> None:
        """Suppose `formula` in all that is asked from now on."""
        self._solver.add(formula)

    def follows(self, conclusion: Formula) -> tuple[str, int]:
        """What z3 says, and in how many of its steps.

        How z3 searches depends on all that its context was asked before, which may cost it ten times the steps. What it
        gives up is asked once more in a context of its own, so that a verdict does not depend on the order of questions.
        A model is no refutation: in it `times` need not be multiplication.
        """
        self._solver.push()
        self._solver.add(z3.Not(conclusion))
        found, steps = _check(self._solver)
        if found == z3.unknown:
            alone = self._solver.translate(z3.Context())
            alone.set(rlimit=MOST_STEPS)
            found, more = _check(alone)
            steps += more
        self._solver.pop()
        return (PROVED if found == z3.unsat else UNKNOWN), steps


def _check(solver: Any) -> tuple[Any, int]:
    """What z3 answers, and the steps that it took."""
    before = _steps(solver)
    found = check(solver)
    return found, _steps(solver) - before


def _steps(solver: Any) -> int:
    return int(solver.statistics().get_key_value("rlimit count"))
