"""What the commands of `python -m proofgrad` do: each gives text to print.

Owns: the listings of stages, rules and machines. Does not own: arguments (__main__.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from proofgrad import Device, __version__
from proofgrad.core import settings
from proofgrad.device_trial import RIGHT, try_devices

if TYPE_CHECKING:
    from proofgrad.core.rewrite.rule import Rule

_ALSO = {"gradient": "cotangent", "gradients": "cotangent"}  # names that users know
_MEANING_OF_STATES = f"one kernel is run on each: {RIGHT} is where its values were right"
_OPTIONAL = ("sklearn", "pyopencl", "cuda", "z3", "lark", "llvmlite", "numpy", "rich")


def demo(epochs: int | None, device: str | None) -> None:
    """Train the demo. Raises: DeviceError, MissingDataError."""
    from proofgrad import demo as training

    if device is not None:
        Device.DEFAULT = device
    training.run(training.EPOCHS if epochs is None else epochs)


def stages() -> str:
    """Every stage of the compiler, with the form that it makes."""
    from proofgrad.core.compile.passes.stages import show_stages, stages_with_override
    from proofgrad.rules.library import load_library
    from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

    sizes = {name: len(rules.rules) for name, rules in load_library().items()}
    rows = show_stages((*GRAPH_STAGES, *KERNEL_STAGES), sizes)
    table = _table([("form", "stage", "kind", "what it is"), *rows])
    chosen = " and ".join(stages_with_override(KERNEL_STAGES))
    return f"{table}\nBEAM=n: a search over what {chosen} are asked (docs/schedules.md)"


def stage_sizes() -> str:
    """Every procedure, with the lines of code of the modules that it is made of."""
    from proofgrad.rules.procedures import lines_of, procedure_sizes

    sizes = procedure_sizes()
    rows = [
        (size.name, str(size.lines), " ".join([path.name for path in size.modules]), size.purpose)
        for size in sizes
    ]
    every = {path for size in sizes for path in size.modules}
    total = f"{len(sizes)} procedures in {len(every)} modules: {lines_of(every)} lines of code,"
    table = _table([("procedure", "lines", "in core/compile", "what it is"), *rows])
    return f"{table}\n{total} each module once"


def rules(ruleset: str | None) -> str:
    """The sets and how many rules each has; or every rule of one set, as written."""
    from proofgrad.rules.library import LOOSE, Meanings, asked_for_by, library_names, load_set

    meanings = Meanings()
    if ruleset is None:
        sizes = {name: len(load_set(name, meanings).rules) for name in library_names()}
        rows = [
            (name, str(size), f"only with {asked_for_by(name)}" if name.startswith(LOOSE) else "")
            for name, size in sizes.items()
        ]
        return _table([("set", "rules, all proven", ""), *rows])
    ruleset = _ALSO.get(ruleset, ruleset)
    if ruleset not in library_names():
        raise ValueError(f"no rule set {ruleset!r}; there are {', '.join(library_names())}")
    found = load_set(ruleset, meanings)
    return "\n".join([rule.text.strip() for rule in found.rules])


def rule_code(ruleset: str | None) -> str:
    """The Python made from rules about sums of index terms: of all, or of one set."""
    from proofgrad.core.compile.passes.stages import RuleSets
    from proofgrad.core.rewrite.division_bounds import DIVISIONS, bounds_code
    from proofgrad.core.rewrite.index_code import index_code
    from proofgrad.rules.library import load_library
    from proofgrad.rules.pipeline import FACTS, KERNEL_STAGES

    library = load_library()
    bounds = FACTS[0]
    if ruleset == bounds:
        tried = library[bounds].rules
        return _with_rules("\n".join([bounds_code(kind, tried) for kind in DIVISIONS]), tried)
    stage = next(stage.step for stage in KERNEL_STAGES if isinstance(stage.step, RuleSets))
    if ruleset is not None and ruleset not in stage.names:
        names = ", ".join([*stage.names, bounds])
        raise ValueError(f"no code is made from {ruleset!r}; there is code of {names}")
    chosen = stage.names if ruleset is None else (ruleset,)
    code = index_code([rule for name in chosen for rule in library[name].rules])
    return _with_rules(code.text, code.tried)


def _with_rules(code: str, rules: Sequence[Rule]) -> str:
    """Code for people: where it says the position of a rule, its name and text."""

    def written(position: re.Match[str]) -> str:
        rule = rules[int(position[1])]
        return f"# {rule.full_name}: {' '.join(rule.text.split())}"

    return re.sub(r"# rule (\d+)$", written, code, flags=re.MULTILINE)


def rule_statistics(ruleset: str | None) -> str:
    """Of each set, or of one: rules, proofs, how and in how many steps of the solver, from the ledgers."""
    from proofgrad.rules.evidence import statistics
    from proofgrad.rules.library import library_names

    if ruleset is not None and ruleset not in library_names():
        raise ValueError(f"no rule set {ruleset!r}; there are {', '.join(library_names())}")
    names = library_names() if ruleset is None else (ruleset,)
    every = [statistics(name) for name in names]
    rows: list[tuple[str, ...]] = [("set", "rules", "proofs", "steps", "methods")]
    for found in every:
        methods = ", ".join([f"{method} {count}" for method, count in found.methods.most_common()])
        steps = f"{found.steps:,}"
        rows.append((found.name, str(found.rules), str(found.proofs), steps, methods))
    if ruleset is None:
        counts = [sum([f.rules for f in every]), sum([f.proofs for f in every])]
        steps = f"{sum([f.steps for f in every]):,}"
        rows.append(("all", *[str(count) for count in counts], steps, ""))
    return _table(rows)


def explain(term: str, file: str | None) -> str:
    """Each rule that fires on a term, with its proof. `file`: more rules, which must be proved."""
    from pathlib import Path

    from proofgrad.core.rewrite.match import RuleSet
    from proofgrad.rules.evidence import proof_from_json
    from proofgrad.user_rules import prove_all
    from proofgrad.verify.explain.steps_of_terms import explain_term

    if file is None:
        return explain_term(term)
    results = prove_all(Path(file))
    rules = [result.rule for result in results]
    proofs = {
        result.rule.full_name: [proof_from_json(o.to_json()) for o in result.obligations]
        for result in results
    }
    added = RuleSet(rules[0].ruleset if rules else "", rules, proven=True)
    return explain_term(term, [added], proofs)


def lay_out(files: Sequence[str], only_check: bool) -> bool:
    """Bring rule files into the one layout, or say which are not; whether all were before."""
    from pathlib import Path

    from proofgrad.verify.dsl.files import decoded, read_source
    from proofgrad.verify.dsl.layout import laid_out
    from proofgrad.verify.prove.ledger import write_whole

    were_so = True
    for path in map(Path, files):
        text = decoded(read_source(path), str(path))
        result = laid_out(text, str(path))
        if result == text:
            continue
        were_so = False
        if not only_check:
            try:
                write_whole(path, result)
            except OSError as error:  # which names a file of its own beside this one
                raise ValueError(f"{path} cannot be written: {error.strerror}") from None
        print(f"{path}: {'not in the layout of rule files' if only_check else 'laid out'}")
    return were_so


def reference() -> str:
    """docs/tensor.md, as the docstrings have it."""
    from proofgrad.reference import tensor_reference

    return tensor_reference()


def environment() -> str:
    """Every variable that the code reads: its value now and its meaning; then the colours."""
    from proofgrad.core.tensor.runtime.report import COLOURS, coloured

    rows = [(name, os.environ.get(name, "-"), text) for name, text in settings.MEANING.items()]
    legend = ", ".join([coloured(role.value, role) for role in COLOURS])
    return f"{_table([('variable', 'now', 'meaning'), *rows])}\nsizes of loops in names: {legend}"


def devices() -> str:
    """Every device with its other names, and whether it computes here."""
    states = try_devices(Device.installed())
    rows = [(name, " ".join(Device.aliases_of(name)), state) for name, state in states.items()]
    return f"{_table([('device', 'also', 'here'), *rows])}\n{_MEANING_OF_STATES}"


def calibrate() -> str:
    """Measure this processor and keep what was found; what changed by it. Raises: DeviceError."""
    from proofgrad import calibrate

    return calibrate.run()


def forget_calibration() -> str:
    """Keep no measurement of this processor."""
    from proofgrad import calibrate

    return calibrate.forget()


def doctor() -> str:
    """Versions, devices, optional packages, settings."""
    return _table(doctor_rows())


def doctor_as_json() -> str:
    """The same, for programs."""
    return json.dumps(dict(doctor_rows()), indent=2)


def doctor_rows() -> list[tuple[str, str]]:
    """What `doctor` says, line by line."""
    return [
        ("proofgrad", __version__),
        ("python", platform.python_version()),
        ("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"),
        ("cache", str(settings.cache_folder())),
        ("calibration", _calibration()),
        ("default device", Device.DEFAULT),
        ("devices", _MEANING_OF_STATES),
        *[(f"device {name}", told) for name, told in try_devices(Device.installed()).items()],
        *[(f"package {name}", _found(name)) for name in _OPTIONAL],
        *[(name, os.environ[name]) for name in settings.MEANING if name in os.environ],
    ]


def _calibration() -> str:
    from proofgrad import calibrate

    return calibrate.state()


def _found(package: str) -> str:
    return "found" if importlib.util.find_spec(package) else "not installed"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest entry; the last one free."""
    widths = [max([len(row[k]) for row in rows]) for k in range(len(rows[0]) - 1)]
    return "\n".join(
        ["  ".join([*[f"{cell:<{w}}" for cell, w in zip(row, widths)], row[-1]]) for row in rows]
    )
