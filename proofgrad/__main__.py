"""`python -m proofgrad COMMAND`: the command line.

Owns: arguments, exit codes. Does not own: what the commands do (commands.py, demo.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    top = argparse.ArgumentParser(
        prog="python -m proofgrad",
        description="A deep-learning framework and tensor compiler whose every rewrite is proven.",
        epilog="More: python -m proofgrad.testing.fuzz computes random programs here and by numpy;"
        " python -m proofgrad.testing.backend NAME checks a machine.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="train a small network on handwritten digits")
    demo.add_argument("--epochs", type=_positive, default=None, help="passes over the data")
    demo.add_argument("--device", default=None, help="where to train, such as CPU or CL")
    stages = commands.add_parser("stages", help="print the compiler: every stage, in order")
    stages.add_argument("--sizes", action="store_true", help="print procedures and lines of code")
    rules = commands.add_parser("rules", help="list the rule sets, or the rules of one set")
    rules.add_argument("ruleset", nargs="?", help="a set, such as algebra")
    rules.add_argument("--stats", action="store_true", help="count rules, proofs and their time")
    rules.add_argument("--code", action="store_true", help="print the code made from index rules")
    explain = commands.add_parser(
        "explain", help="show which rules fire on a term, and their proof"
    )
    explain.add_argument("term", help='such as "(x // 4) // 8 over index where 0 <= x < 100"')
    explain.add_argument("--rules", metavar="FILE", help="prove these rules and use them too")
    layout = commands.add_parser("fmt", help="bring .rules files into the one layout")
    layout.add_argument("files", nargs="+", metavar="FILE")
    layout.add_argument("--check", action="store_true", help="change nothing; 1 if some would be")
    docs = commands.add_parser("docs", help="print a page that is made from the docstrings")
    docs.add_argument("page", choices=["tensor"], help="which page")
    doctor = commands.add_parser("doctor", help="say what works on this machine, what is missing")
    doctor.add_argument("--json", action="store_true", help="for programs")
    commands.add_parser(
        "devices", help="list the devices, and which compute here: one kernel is run on each"
    )
    calibrate = commands.add_parser(
        "calibrate", help="measure this processor, and let kernels be chosen by what was found"
    )
    calibrate.add_argument("--forget", action="store_true", help="use the defaults again")
    commands.add_parser("env", help="list the environment variables, their values and meanings")
    return top


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it worked, 1 if not."""
    asked = parser().parse_args(arguments)
    from proofgrad import commands
    from proofgrad.core.messages import print_any_text

    print_any_text()

    try:
        match asked.command:
            case "demo":
                commands.demo(asked.epochs, asked.device)
            case "stages" if asked.sizes:
                print(commands.stage_sizes())
            case "stages":
                print(commands.stages())
            case "rules" if asked.stats:
                print(commands.rule_statistics(asked.ruleset))
            case "rules" if asked.code:
                print(commands.rule_code(asked.ruleset))
            case "rules":
                print(commands.rules(asked.ruleset))
            case "explain":
                print(commands.explain(asked.term, asked.rules))
            case "fmt":
                was_so = commands.lay_out(asked.files, asked.check)
                return 1 if asked.check and not was_so else 0
            case "docs":
                print(commands.reference(), end="")
            case "doctor":
                print(commands.doctor_as_json() if asked.json else commands.doctor())
            case "devices":
                print(commands.devices())
            case "calibrate":
                print(commands.forget_calibration() if asked.forget else commands.calibrate())
            case "env":
                print(commands.environment())
    except (RuntimeError, ValueError, OSError) as error:
        print(f"{asked.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
