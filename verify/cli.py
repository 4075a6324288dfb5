"""The command verify-rules: prove what is missing, check what is there, explain what is wrong.

Owns: arguments, output, exit codes (0: all is proved; 1: something is not; 2: wrong usage). Does
not own: proofs (prove/rules.py), ledgers (ledger.py, core/rewrite/ledger.py), counterexamples.

Nothing here imports a solver or the parser at the top: `--check` answers without them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from proofgrad.core.messages import print_any_text
from proofgrad.core.rewrite.ledger import find_problems
from proofgrad.rules.additions import AdditionError
from proofgrad.rules.library import Meanings, ledger_file, library_names, rule_file
from proofgrad.verify.prove.workers import WorkerDied, process_count
from proofgrad.verify.steps.all_steps import problems as problems_of_steps

if TYPE_CHECKING:
    from proofgrad.verify.commands.prove import Options


_NEEDED = {"z3": "z3-solver", "lark": "lark"}  # what proves, and what installs it
# What the command does instead of proving; the names of its options.
_TASKS = ("check", "update", "watch", "refuted", "mutants", "crosscheck", "check_records", "report")


def run() -> NoReturn:
    """The command in a process of its own, which ends when all is said.

    Else z3 first gives back all that it was ever asked, which has taken more than nine minutes.
    """
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    print_any_text()
    arguments = _arguments(argv)
    try:
        if arguments.check:
            return check(arguments.json)
        if arguments.watch:
            from proofgrad.verify.commands.watch import watch

            return watch(Path(arguments.watch), arguments.jobs)
        from proofgrad.verify.commands import prove as commands

        if arguments.check_records:
            from proofgrad.verify.commands.complete import check_records

            return check_records()
        if arguments.report is not None:
            return print_page(arguments.report)
        if arguments.crosscheck is not None:
            return _crosscheck(arguments)
        if arguments.files:
            paths = [Path(name) for name in arguments.files]
            seconds = commands.SECONDS_A_FILE if arguments.seconds is None else arguments.seconds
            return commands.prove_files(paths, arguments.jobs, arguments.json, seconds)
        if arguments.refuted:
            return commands.refute_all(arguments.jobs)
        if arguments.mutants is not None:
            from proofgrad.verify.commands.mutants import judge_library

            write = not arguments.no_write
            return judge_library(arguments.mutants, arguments.jobs, write, arguments.all)
        if arguments.update:
            from proofgrad.verify.commands.update import update

            return update(lambda: _prove_everything(_options(arguments)), arguments.jobs)
        return _prove_everything(_options(arguments))
    except KeyboardInterrupt:
        print("stopped; ledgers that were not finished are as they were", file=sys.stderr)
        return 130
    except AdditionError as error:
        print(error)
        return 1
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        needed = f"`pip install {_NEEDED[error.name]}`; `verify-rules --check` does without"
        print(f"proofs need the package {error.name}: {needed}", file=sys.stderr)
        return 1
    except OSError as error:  # of files that are read the commands tell themselves
        print(f"not everything was written: {error}; a file is whole, old or new", file=sys.stderr)
        return 1
    except WorkerDied as error:
        print(f"{error}; ledgers are as they were", file=sys.stderr)
        return 1


def _prove_everything(options: Options) -> int:
    """The rules, then the laws of the steps."""
    from proofgrad.verify.commands import prove as commands
    from proofgrad.verify.steps.claims import PROVED
    from proofgrad.verify.steps.prove import prove_steps

    failed = commands.prove_library(options)
    proofs = prove_steps(options.from_nothing, options.write, options.verbose)
    return failed or int(any([proof.verdict != PROVED for proof in proofs]))


def _options(arguments: argparse.Namespace) -> Options:
    from proofgrad.verify.commands.prove import Options

    return Options(
        from_nothing=arguments.all,
        write=not arguments.no_write,
        verbose=arguments.verbose,
        jobs=arguments.jobs,
    )


def _crosscheck(arguments: argparse.Namespace) -> int:
    """Of everything from nothing, beside z3; else of goals that z3 decided before."""
    from proofgrad.verify.commands.crosscheck import crosscheck_library, prove_with_crosscheck

    if arguments.all and not arguments.crosscheck:
        return prove_with_crosscheck(_options(arguments))
    write = not arguments.no_write
    return crosscheck_library(arguments.crosscheck, arguments.jobs, write, arguments.all)


def print_page(name: str) -> int:
    """Print a page of docs/ that is made of the files in proofs/."""
    from proofgrad.verify.commands.pages import PAGES

    try:
        print(PAGES[name](), end="")
    except ValueError as error:  # a record that is no record
        print(f"the page cannot be made: {error}", file=sys.stderr)
        return 1
    return 0


def check(as_json: bool = False) -> int:
    """Whether every rule and every step has fresh evidence; names what is missing or stale."""
    start = time.perf_counter()
    meanings = Meanings()
    problems = [problem for name in library_names() for problem in _problems_of(name, meanings)]
    problems += problems_of_steps()
    for problem in problems:
        print(json.dumps({"problem": problem}) if as_json else problem)
    if as_json:
        return 1 if problems else 0
    seconds = time.perf_counter() - start
    count = len(library_names())
    if problems:
        many = "s" if len(problems) > 1 else ""
        print(f"{len(problems)} problem{many} in {count} rule sets and the steps ({seconds:.2f} s)")
        return 1
    print(f"every rule of {count} rule sets and every step has fresh evidence ({seconds:.2f} s)")
    return 0


def _problems_of(name: str, meanings: Meanings) -> list[str]:
    try:
        ledger = ledger_file(name).read_bytes()
    except FileNotFoundError:
        return [f"rule {name}.* may not be used: it has no ledger; run `verify-rules`"]
    source = rule_file(name).read_bytes()
    return [str(p) for p in find_problems(name, source, ledger, meanings.of(ledger))]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What is asked for; ends with code 2 where a part of it would be passed over in silence."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    asked = [f"--{name.replace('_', '-')}" for name in _TASKS if _is_given(arguments, name)]
    if len(asked) > 1:
        parser.error(f"{' and '.join(asked)}: ask for one of them at a time")
    if asked and arguments.files:
        parser.error(
            f"{asked[0]} is about the library, and takes no FILE; `verify-rules"
            f" {' '.join(arguments.files)}` proves what is in the files"
        )
    if arguments.seconds is not None and not arguments.files:
        parser.error("--seconds is for FILE")
    if arguments.json and not arguments.files and asked != ["--check"]:
        parser.error("--json is for FILE and for --check")
    return arguments


def _is_given(arguments: argparse.Namespace, name: str) -> bool:
    value = getattr(arguments, name)
    return value is not None and value is not False


def _processes(text: str) -> int:
    digits = text.lstrip("0")
    if not text.isdecimal() or not digits:
        raise argparse.ArgumentTypeError(f"a number of processes is 1 or more, not {text}")
    return min(int(digits[:9]), process_count())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a limit of time is 0 or more seconds, not {text}")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verify-rules",
        description="Prove rewrite rules. Without arguments: prove what has no fresh evidence.",
        epilog="exit code: 0 all is proved, 1 something is not, 2 wrong usage, 130 interrupted",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="prove the rules of these files")
    parser.add_argument("--all", action="store_true", help="prove everything from nothing")
    parser.add_argument(
        "--no-write", action="store_true", help="leave the files in proofs/ as they are"
    )
    parser.add_argument("--check", action="store_true", help="only say what is missing or stale")
    parser.add_argument(
        "--json",
        action="store_true",
        help="of FILE or --check: a line of JSON for each rule, mistake or problem",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="after a change of rules: layout, proofs, mutants, other solvers, pages of docs/",
    )
    parser.add_argument("--watch", metavar="FILE", help="prove a file each time that it changes")
    parser.add_argument("--refuted", action="store_true", help="check that wrong rules are refuted")
    parser.add_argument(
        "--mutants", nargs="*", metavar="SET", help="break each rule a little and refute the result"
    )
    parser.add_argument(
        "--crosscheck",
        nargs="*",
        metavar="FILE",
        help="ask other solvers about each goal of the library, of a set or of a file; with --all"
        " and no FILE, prove everything from nothing by z3 and by them",
    )
    parser.add_argument(
        "--check-records",
        action="store_true",
        help="only say which rules other solvers or mutants say nothing about; asks no solver",
    )
    parser.add_argument(
        "--report",
        nargs="?",
        const="evidence",
        choices=("evidence", "mutants", "steps"),
        help="print docs/evidence.md, docs/mutants.md or docs/steps.md",
    )
    parser.add_argument(
        "--jobs",
        "-j",
        type=_processes,
        metavar="N",
        help="processes, at most one a core (default: as many)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="N",
        help="of FILE: give up rules that are not decided by then (default: 600; 0: never)",
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="one line for each rule")
    return parser


if __name__ == "__main__":
    run()
