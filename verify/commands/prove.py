"""What verify-rules does once it needs the parser and the solver.

Owns: the library's ledgers as a whole, proving of files, the check of refuted rules, the text of
results. Does not own: arguments and exit codes' meaning (cli.py), proofs (prove/rules.py).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import z3

from proofgrad.core.rewrite.ledger import PROVED, ledger_text
from proofgrad.core.rewrite.rule import Rule, rule_to_json
from proofgrad.rules.library import PROOFS, Meanings, ledger_file, library_names, rule_file
from proofgrad.verify.audit.operations import missing_from_all
from proofgrad.verify.commands import json_lines
from proofgrad.verify.dsl.files import decoded, parse_whole, read_source
from proofgrad.verify.explain.counterexample import explain
from proofgrad.verify.explain.forestalled import forestalled
from proofgrad.verify.explain.hint import SECONDS as HINT_SECONDS
from proofgrad.verify.explain.hint import hint
from proofgrad.verify.prove.ledger import (
    Entry,
    entry_of,
    fresh_entries,
    is_run_as_before,
    old_entries,
    run_again,
    write_whole,
)
from proofgrad.verify.prove.progress import Progress
from proofgrad.verify.prove.rules import Result, Witness, prove_rules, run_rules
from proofgrad.verify.prove.workers import seconds_left

REFUTED_RULES = PROOFS / "refuted"
# Of the clock, for a file that may hold anything; the library has no such limit.
SECONDS_A_FILE = 600.0
FOR_PROOFS = 0.9  # of them; the others are for explanations


def solver_versions() -> dict[str, str]:
    """The solvers that decide, as ledgers name them."""
    return {"z3": z3.get_version_string()}


@dataclass(frozen=True, slots=True)
class Options:
    """How to prove the library."""

    from_nothing: bool = False
    write: bool = True
    verbose: bool = False
    jobs: int | None = None


def prove_library(options: Options) -> int:
    """Prove what has no fresh evidence (or everything) and write the ledgers. 1 if a rule fails."""
    return prove_with_witness(options, None)[0]


def prove_with_witness(options: Options, witness: Witness | None) -> tuple[int, list[Result]]:
    """As `prove_library`, with a witness to each case that is proved anew; also what was found."""
    start = time.perf_counter()
    files, solvers = Meanings(), solver_versions()
    sources = {name: rule_file(name).read_bytes() for name in library_names()}
    try:
        rules = {name: _parse(source, f"{name}.rules") for name, source in sources.items()}
    except ValueError as error:
        print(error)
        return 1, []
    meanings = {name: files.of(_as_written(its_rules)) for name, its_rules in rules.items()}
    missing_from_ops = missing_from_all(rules)
    if missing_from_ops:
        print(*missing_from_ops, "nothing was proved: docs/add-an-op.md has the steps", sep="\n")
        return 1, []
    kept: dict[str, dict[str, Entry]] = {name: {} for name in rules}
    before: dict[str, Entry] = {}
    if not options.from_nothing:
        for name, its_rules in rules.items():
            kept[name] = fresh_entries(ledger_file(name), its_rules, meanings[name], solvers)
            before |= old_entries(ledger_file(name), its_rules, solvers)
    missing = [rule for name in rules for rule in rules[name] if rule.name not in kept[name]]
    results = _run_again(kept, rules, meanings, options.jobs)
    tell = _teller([*[result.rule for result in results], *missing], options.verbose)
    for result in results:
        tell(result)
    results += _prove(missing, options.jobs, before, witness, tell)
    made = {r.rule.full_name: entry_of(r, meanings[r.rule.ruleset], solvers) for r in results}
    texts: dict[str, str] = {}
    for name, its_rules in rules.items():
        entries = [kept[name].get(r.name) or made[r.full_name] for r in its_rules]
        texts[name] = ledger_text(name, sources[name], meanings[name], solvers, entries)
    failed = [result for result in results if result.verdict != PROVED]
    _print_failures(failed)
    for name in texts if options.write else ():
        _write_what_is_new(ledger_file(name), texts[name])
    _print_summary(results, sum(len(k) for k in kept.values()), time.perf_counter() - start)
    if Meanings().of(None) != files.of(None):
        print("a file that gives rules their meaning changed meanwhile: run verify-rules again")
        return 1, results
    still_refuted = refute_all(options.jobs) if options.from_nothing else 0
    return 1 if failed or still_refuted else 0, results


def _write_what_is_new(path: Path, text: str) -> None:
    """So that a folder which cannot be written, as of an installed package, is enough where nothing changed."""
    if not path.is_file() or path.read_bytes() != text.encode():
        write_whole(path, text)


def _run_again(
    kept: dict[str, dict[str, Entry]],
    rules: Mapping[str, Sequence[Rule]],
    meanings: Mapping[str, str],
    jobs: int | None,
) -> list[Result]:
    """Run the rules of entries that are kept, where something that executes rules has changed.

    Entries are changed to what was found; rules that are executed otherwise now are left out, and given.
    """
    changed = [name for name in kept if not is_run_as_before(ledger_file(name), meanings[name])]
    again = [rule for name in changed for rule in rules[name] if rule.name in kept[name]]
    failed = []
    for result in run_rules(again, jobs) if again else ():
        entries, name = kept[result.rule.ruleset], result.rule.name
        if result.verdict == PROVED and result.agreement is not None:
            entries[name] = run_again(entries[name], result.agreement)
        else:
            del entries[name]
            failed.append(result)
    if again:
        print(f"the engine ran {len(again)} proved rules again")
    return failed


def _as_written(rules: Sequence[Rule]) -> bytes:
    """The rules as a ledger has them."""
    return json.dumps([rule_to_json(rule) for rule in rules], separators=(",", ":")).encode()


def prove_files(
    paths: Sequence[Path], jobs: int | None, as_json: bool = False, seconds: float = SECONDS_A_FILE
) -> int:
    """Prove the rules of files and say of each what is known. 1 if one is not proved, or a file has none.

    `seconds`: after which the rules of a file that are left, and hints, are given up; 0 for never. Each rule gets a
    fair share of them.
    """
    failed = False
    for path in paths:
        try:
            source = read_source(path)
            rules = _parse(source, str(path), check_order=False)
            start = time.monotonic()
            until = start + seconds if seconds else None
            for_proofs = start + FOR_PROOFS * seconds if seconds else None
            in_json = partial(json_lines.print_result, path, until=until)
            results = _prove(
                rules, jobs, on_result=in_json if as_json else _teller(rules), until=for_proofs
            )
            if not results:  # or a file of which all is commented out would pass
                raise ValueError(f"{path}: the file has no rules")
            wrong = [r for r in results if r.verdict != PROVED]
            if not as_json:
                _print_failures(wrong, until)
                _print_undecided(path, wrong, seconds)
                _print_forestalled(path, rules)
            failed = failed or bool(wrong)
            _parse(source, str(path))  # true rules must also come to an end
        except (OSError, ValueError) as error:
            json_lines.print_mistakes(path, error) if as_json else print(_told(path, error))
            failed = True
    return 1 if failed else 0


def _told(path: Path, error: Exception) -> str:
    """A mistake; where the name of a rule set or of a rule was given for that of a file, with the file."""
    name = path.name.partition(".")[0]
    if path.exists() or name not in library_names():
        return str(error)
    return f"{error}; the rule set {name} of the library is the file {rule_file(name)}"


def _print_forestalled(path: Path, rules: Sequence[Rule]) -> None:
    for rule, earlier in forestalled(rules):
        print(
            f"{path}:{rule.line}: rule {rule.name!r} never fires: rule {earlier.name!r} of line"
            f" {earlier.line} takes all that it matches; put the more special one first, or leave it out"
        )


def prove_file(path: Path, jobs: int | None = None) -> list[Result]:
    """The verdict on each rule of a file. Raises: ValueError with the position, or the name where it cannot be read."""
    return prove_source(read_source(path), str(path), jobs)


def prove_source(source: bytes, filename: str, jobs: int | None = None) -> list[Result]:
    """The verdict on each rule of a file with these bytes. Raises: ValueError with the position."""
    return _prove(_parse(source, filename), jobs)


def refute_all(jobs: int | None) -> int:
    """Check that the rules known to be wrong are refuted: this tests the prover. 1 if not."""
    start = time.perf_counter()
    rules = [
        rule
        for path in sorted(REFUTED_RULES.glob("*.rules"))
        for rule in _parse(path.read_bytes(), path.name, check_order=False)
    ]
    results = _prove(rules, jobs)
    wrong = [result for result in results if result.verdict != "refuted"]
    for result in wrong:
        print(f"{result.rule.full_name} has to be refuted, but is {result.verdict}")
    seconds = time.perf_counter() - start
    print(f"{len(results) - len(wrong)} of {len(results)} wrong rules refuted ({seconds:.1f} s)")
    return 1 if wrong else 0


def _parse(source: bytes, filename: str, check_order: bool = True) -> tuple[Rule, ...]:
    return parse_whole(decoded(source, filename), filename, check_order).rules


def _prove(
    rules: Sequence[Rule],
    jobs: int | None,
    before: dict[str, Entry] | None = None,
    witness: Witness | None = None,
    on_result: Callable[[Result], None] | None = None,
    until: float | None = None,
) -> list[Result]:
    with Progress("proving") as progress:
        return prove_rules(rules, jobs, progress.update, before, witness, on_result, until)


def _teller(rules: Sequence[Rule], is_verbose: bool = True) -> Callable[[Result], None]:
    """What prints a line for a verdict on one of these rules, as soon as it is known; if not verbose, nothing."""
    width = max([len(rule.full_name) for rule in rules], default=0)

    def tell(result: Result) -> None:
        if not is_verbose:
            return
        name = f"{result.rule.full_name:{width}}"
        if result.is_out_of_time:
            print(f"{result.verdict:8} {name}  {result.reason}", flush=True)
            return
        count = len(result.obligations)
        cases = f"{count} case{'s' if count != 1 else ''}"
        agreed = result.agreement
        ran = f", {agreed.instances} instances at {agreed.points} points" if agreed else ""
        if agreed and agreed.difference:
            ran = ", an instance differs"
        print(f"{result.verdict:8} {name}  {cases}, {result.seconds:.2f} s{ran}", flush=True)

    return tell


def _print_failures(failed: Sequence[Result], until: float | None = None) -> None:
    """What is known of rules that are not proved, of as many as there is time for."""
    known = [result for result in failed if not result.is_out_of_time]
    for number, result in enumerate(known):
        left = seconds_left(until)
        print()
        if not left:
            print(f"{len(known) - number} more rules are not explained, for time was up")
            break
        print(explain(result))
        lacking = hint(result, min(HINT_SECONDS, left / (len(known) - number)))
        if lacking:
            print(f"  {lacking}")
    sys.stdout.flush()


def _print_undecided(path: Path, failed: Sequence[Result], seconds: float) -> None:
    left = sum([result.is_out_of_time for result in failed])
    if left:
        print(f"\n{path}: {left} rules are not decided, for the {seconds:g} s of --seconds were up")


def _print_summary(results: Sequence[Result], kept: int, seconds: float) -> None:
    verdicts = [result.verdict for result in results]
    counts = [f"{verdicts.count(v)} {v}" for v in ("proved", "refuted", "unknown") if v in verdicts]
    cases = sum(len(result.obligations) for result in results)
    old = sum(o.decision.is_old for result in results for o in result.obligations)
    told = ", ".join(counts) or "nothing to prove"
    print(
        f"{told} ({cases} cases, {old} with goals decided before); {kept} fresh before; {seconds:.1f} s"
    )
    for result in results:
        for needed in result.undecided:
            print(f"not known to be needed: {result.rule.full_name}: {needed.condition}")
    agreed = [result.agreement for result in results if result.agreement is not None]
    if agreed:
        instances, points = sum(a.instances for a in agreed), sum(a.points for a in agreed)
        print(
            f"the engine ran {len(agreed)} rules on {instances:,} instances, at {points:,} points"
        )
    slowest = sorted(results, key=lambda r: -r.seconds)[:3]
    if slowest:
        shown = ", ".join(f"{r.rule.full_name} {r.seconds:.1f} s" for r in slowest)
        print(f"slowest: {shown}")
