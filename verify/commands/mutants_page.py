"""The page docs/mutants.md: what became of rules with a small mistake in them.

Owns: the text of the page, made of proofs/mutants.json and proofs/survivors.json. Does not own: either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from proofgrad.rules.library import library_names
from proofgrad.verify.audit.judge_mutants import (
    MOST_CASES,
    SECONDS_A_QUESTION,
    STEPS_A_QUESTION,
    VERDICTS,
)
from proofgrad.verify.audit.mutants_record import (
    ByHand,
    Told,
    counts,
    decided,
    open_mutants,
    read_by_hand,
    read_record,
    verdict_by_hand,
)
from proofgrad.verify.commands.crosscheck import library_entries
from proofgrad.verify.commands.mutants import LEAST_DECIDED, MUTANTS, SURVIVORS

_STEPS = " and then ".join([f"{steps:,}" for steps in STEPS_A_QUESTION])

_HEAD = f"""# Mutants: does the prover see a small mistake?

A prover that accepts everything would also accept every rule. So each rule is broken in each small way, and the prover is
asked again:

```sh
verify-rules --mutants              # rules without a verdict; stop it and start it again as you like
verify-rules --mutants where --all  # all rules of a set, again
verify-rules --report mutants       # prints this page, from proofs/mutants.json
```

A *mutant* is a rule with one change in its data (`verify/audit/mutants.py`): a constant is one more, one less, zero or negated; a
condition is gone; a comparison is another one; the operands of an operation that does not commute are swapped; an operation
is its neighbour (max and min, and and or, `//` and truncdiv, + and *, << and >>, ...); a sign is dropped; `lo` is `hi`; a
variable that stood twice stands once. Combinations that have no type, such as a shift of a float, are left out.

| verdict | it means |
|---|---|
| refuted | values were found on which the sides differ; or it claims nothing, and no prover would take it: its sides have different types, or use what changes in a loop outside of it |
| equal | proven: the change made another true rule, most often one that claims less |
| idle | proven, and no values were found that meet its conditions |
| open | neither |

Samples are drawn in every case of a mutant. Solvers are asked about its {MOST_CASES} smallest cases: first whether the mutant
follows from the rule, which is proven, then as about a rule, in {_STEPS} steps a question
({SECONDS_A_QUESTION:g} s for steps without end), until a case is open. So an equal mutant is a true law in its smallest cases; that it is
one in all was not asked.

Only *proved* rules load, so an open mutant would be refused like a refuted one. But a prover that leaves much open shows
little, so the command fails if more than {1 - LEAST_DECIDED:.0%} are open. A verdict stays until the rule or its mutants change.

## Measured

"""

_EQUAL = """
## The equal ones

By what was changed:

"""

_WHY = """
Why such a change leaves a rule true:

| change | why |
|---|---|
| `max` for `min`, `&` for `\\|`, `>>` for `<<`, truncdiv for `//` in rules about one operand, 0, 1 or -1 | both operations agree there |
| truncdiv for `//`, truncmod for `%`, under conditions of sign | they differ for negative operands only |
| a stricter condition: `<` for `<=`, 1 for 0 | it claims less |
| in facts: a wider interval, fewer known bits | it claims less |
| 0.0 for -0.0 in laws of real numbers and of gradients | no difference there |
"""


def mutants_report() -> str:
    """The page."""
    record, by_hand = read_record(MUTANTS), read_by_hand(SURVIVORS)
    return "".join([_HEAD, _sets(record), _EQUAL, _kinds(record), _WHY, _open(record, by_hand)])


def _sets(record: Mapping[str, Told]) -> str:
    rows, rules = [], 0
    for name in library_names():
        count = len(library_entries([name]))
        of_set = [told for full, told in record.items() if full.startswith(f"{name}.")]
        rows.append(_row(name, count, of_set))
        rules += count
    rows.append(_row("**together**", rules, list(record.values())))
    text = f"Of {rules} rules, {len(record)} were judged since they or their mutants changed.\n\n"
    return text + _table(["set", "rules", "judged", "mutants", *VERDICTS, "decided"], rows)


def _row(name: str, rules: int, every: Sequence[Told]) -> list[str]:
    found = counts(every)
    numbers = [rules, len(every), sum(found.values()), *[found[verdict] for verdict in VERDICTS]]
    return [name, *map(str, numbers), f"{100 * decided(found):.1f} %"]


def _kinds(record: Mapping[str, Told]) -> str:
    found = Counter([_kind(one["change"]) for told in record.values() for one in told["equal"]])
    return _table(["change", "mutants"], [[kind, str(n)] for kind, n in found.most_common()])


def _kind(change: str) -> str:
    """A change without its details."""
    position, _, what = change.partition(": ")
    if what.endswith("is not repeated"):
        return f"{position}: a variable not repeated"
    if what.startswith("operands of"):
        return f"{position}: operands swapped"
    if what.startswith("without"):
        return (
            f"{position}: a condition gone" if position == "where" else f"{position}: a sign gone"
        )
    before = what.partition(" becomes ")[0]
    if before[-1:].isdigit() or before in ("inf", "-inf", "nan", "True", "False"):
        return f"{position}: another number"
    return f"{position}: another operation or comparison"


def _open(record: Mapping[str, Told], by_hand: Sequence[ByHand]) -> str:
    found = dict.fromkeys([(name, one["change"]) for name, one in open_mutants(record)])
    rows = [
        [f"`{name}`", change.replace("|", "\\|"), verdict_by_hand(name, change, by_hand) or ""]
        for name, change in found
    ]
    if not rows:
        return "\nNone is open.\n"
    text = "The verdicts are people's, from `proofs/survivors.json`.\n\n"
    return f"\n## The open ones, by hand\n\n{text}" + _table(["rule", "change", "verdict"], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join([f"| {' | '.join(line)} |\n" for line in lines])
