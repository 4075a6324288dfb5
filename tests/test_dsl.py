"""The rule language: what parses to what, what is refused and how, what is shown as text again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rules_from_text import unproven_facts, unproven_library

from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    RuleKind,
    Term,
    Var,
    rule_from_json,
    rule_to_json,
)
from proofgrad.core.rewrite.sum_laws import is_collector, is_linear_law, missing_laws
from proofgrad.rules.library import library_names, rule_file
from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import RuleError, RuleSyntaxError
from proofgrad.verify.dsl.parser import MAX_DEPTH, MAX_FILE_BYTES, parse_rules, read_example
from proofgrad.verify.dsl.show import show_expr, show_file, show_rule, show_term
from proofgrad.verify.dsl.termination import goes_down
from proofgrad.verify.dsl.termination_sums import is_tested_at_each_use

WRONG_FILES = sorted((Path(__file__).parent / "golden" / "dsl_errors").glob("*.rules"))
HEADER = "ruleset demo over int\n"


def rule_of(line: str, domains: str = "int") -> Rule:
    """The one rule of a file that has nothing else."""
    return parse_rules(f"ruleset demo over {domains}\n{line}", check_order=False).rules[0]


def library_rules() -> list[Rule]:
    return [rule for ruleset in unproven_library().values() for rule in ruleset.rules]


def x(type_: str = "T") -> Var:
    return Var("x", type_)


# -- what parses to what -------------------------------------------------------------------------


def test_parse_of_a_simple_rule_gives_its_parts() -> None:
    parsed = parse_rules('ruleset demo over int, index\n"Nothing added."\nrule a: x + 0 => x')
    assert (parsed.ruleset, parsed.domains) == ("demo", ("int", "index"))
    assert parsed.rules == (
        Rule(
            name="a",
            ruleset="demo",
            kind=RuleKind.REWRITE,
            domains=("int", "index"),
            types=(("T", "domain"),),
            left=Node("ADD", (x(), Lit(0, "T")), "T"),
            right=(x(),),
        ),
    )
    rule = parsed.rules[0]
    assert (rule.text, rule.doc, rule.line) == ("rule a: x + 0 => x", "Nothing added.", 3)


def test_difference_of_terms_is_a_sum_with_a_negation() -> None:
    assert rule_of("rule a: x - y => x").left == Node(
        "ADD", (x(), Node("NEG", (Var("y", "T"),), "T")), "T"
    )


def test_minus_before_a_number_is_part_of_the_literal() -> None:
    left = rule_of("rule a: x + -0.0 => x", "float").left
    assert isinstance(left, Node) and repr(left.src[1]) == repr(Lit(-0.0, "T"))


def test_operators_bind_as_in_python() -> None:
    text = "x | y ^ z & x << y + z * -x"
    assert show_term(rule_of(f"rule a: {text} => x").left) == text
    assert show_term(rule_of("rule a: ((x + y) * z) // (x - y) => x").left) == (
        "(x + y) * z // (x + -y)"
    )


def test_names_of_constants_are_constants_and_others_variables() -> None:
    left = rule_of("rule a (const size): c1 * size => {c1}").left
    assert left == Node("MUL", (Const("c1", "T"), Const("size", "T")), "T")


def test_variable_in_a_comparison_stands_for_its_bounds() -> None:
    rule = rule_of("rule a: x % c => x where 0 <= x, x < c")
    assert rule.where == (
        Apply("<=", (Num(0), Apply("lo", (Fact(x()),)))),
        Apply("<", (Apply("hi", (Fact(x()),)), Name("c"))),
    )
    assert rule == rule_of("rule a: x % c => x where lo(x) >= 0 and c > hi(x)")


def test_unequal_variables_have_bounds_that_do_not_meet() -> None:
    (condition,) = rule_of("rule a: x == y => false where x != y").where
    assert show_expr(condition) == "hi(x) < lo(y) or hi(y) < lo(x)"


def test_less_or_equal_in_a_term_is_a_negated_less() -> None:
    left = rule_of("rule a: where(x <= y, x, y) => x").left
    assert show_term(left) == "where(!(y < x), x, y)"


def test_comparison_leaves_the_domain_to_its_operands() -> None:
    rule = rule_of("rule a: x < x => false", "int, float, bool")
    assert rule.left == Node("CMPLT", (x(), x()), "bool")
    assert (rule.right, rule.types) == ((Lit(False, "bool"),), (("T", "domain"),))


def test_declared_types_are_kept_in_casts() -> None:
    rule = rule_of("rule a (A in int, B in any): cast(cast(x: A, B), A) => x", "cast")
    inner = Node("CAST", (x("A"),), "B")
    assert rule.left == Node("CAST", (inner,), "A")
    assert rule.types == (("A", "int"), ("B", "any"))


def test_wrapped_constant_keeps_operations_of_its_type() -> None:
    (right,) = rule_of("rule a: (x + c) + d => x + {wrap: c - 1 + d}").right
    assert isinstance(right, Node)
    minus_one = Node("NEG", (Lit(1, "T"),), "T")
    less_one = Node("ADD", (Const("c", "T"), minus_one), "T")
    assert right.src[1] == Calc(Node("ADD", (less_one, Const("d", "T")), "T"), "T", "wrap")


def test_reduction_is_of_ranges_in_loops_and_of_axes_in_tensors() -> None:
    loop = rule_of("rule a (T in int): sum[R](-x) => -sum[R](x)", "loop").left
    tensor = rule_of("rule a: max[a](max[b](x)) => max[union(a, b)](x)", "tensor").left
    assert isinstance(loop, Node) and loop.src[1] == Var("R", "ranges")
    assert isinstance(tensor, Node) and tensor.op == "REDUCE_AXIS"
    assert show_term(tensor) == "max[a](max[b](x))"


def test_extractor_binds_terms_and_numbers() -> None:
    rule = rule_of(
        "rule a: x // c => y // d where g > 0 let (g, y, r, d) = gcd_split(x, c)", "index"
    )
    assert rule.extractors[0].outputs == (
        ("g", "number"),
        ("y", "term"),
        ("r", "term"),
        ("d", "number"),
    )
    assert rule.right == (Node("FLOORDIV", (Var("y", "T"), Calc(Name("d"), "T")), "T"),)


def test_cotangents_stand_one_for_each_source() -> None:
    rule = rule_of("cotangent a: where(p, x, y), g => none, where(p, g, 0.0), none", "derivative")
    assert rule.kind is RuleKind.COTANGENT
    assert rule.right[0] is None and rule.right[2] is None
    assert show_term(rule.right[1] or x()) == "where(p, g, 0.0)"


def test_bounds_are_two_exact_constants() -> None:
    rule = rule_of("bounds a: -x in [-hi(x), -lo(x)]")
    assert rule.right == (
        Calc(Apply("neg", (Apply("hi", (Fact(x()),)),)), "T"),
        Calc(Apply("neg", (Apply("lo", (Fact(x()),)),)), "T"),
    )


def test_keywords_may_be_names_of_rules() -> None:
    assert rule_of("bounds where: max(x, y) in [lo(x), hi(y)]").name == "where"


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", WRONG_FILES, ids=[p.stem for p in WRONG_FILES])
def test_wrong_file_is_refused_with_position_and_reason(path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(path.read_text(), path.name)
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text()


def test_error_is_a_value_error_with_its_position() -> None:
    with pytest.raises(ValueError, match="'y' is not bound") as caught:
        parse_rules(HEADER + "rule a: x + 0 => x\nrule b: x * 1 => y", "f.rules")
    assert isinstance(caught.value, RuleError)
    assert (caught.value.filename, caught.value.line, caught.value.column) == ("f.rules", 3, 18)


def test_empty_text_ends_too_early() -> None:
    with pytest.raises(RuleSyntaxError, match="ends too early; expected 'ruleset'"):
        parse_rules("")


def test_file_over_the_size_limit_is_refused() -> None:
    comment = "#" + "x" * MAX_FILE_BYTES
    with pytest.raises(RuleSyntaxError, match=f"at most {MAX_FILE_BYTES} are read"):
        parse_rules(HEADER + comment)


@pytest.mark.parametrize("term", ["-" * 70 + "x", " + ".join(["x"] * 5000), "f(" * 500 + ")" * 500])
def test_deep_nesting_is_refused_before_anything_recurses(term: str) -> None:
    with pytest.raises(RuleSyntaxError, match=f"more than {MAX_DEPTH} levels|unexpected"):
        parse_rules(HEADER + f"rule a: {term} => x")


def test_parentheses_alone_are_not_depth() -> None:
    assert rule_of("rule a: " + "(" * 3000 + "x + 0" + ")" * 3000 + " => x").right == (x(),)


def test_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(RuleError, match="more than 100 characters"):
        parse_rules(HEADER + f"rule a: x + {'9' * 5000} => x")


@pytest.mark.parametrize("number", ["1e400", "1.5e-400", "0.1e-330"])
def test_a_decimal_that_no_float_is_near_is_refused(number: str) -> None:
    with pytest.raises(RuleError, match=f"{number} is no value of any float; it would be read as"):
        parse_rules(f"ruleset t over float\nrule a: x * {number} => x * nan")


def test_zeros_with_exponents_are_zeros() -> None:
    assert parse_rules("ruleset t over float\nrule a: x + -0.0e-9 => x").rules[0].left is not None


@pytest.mark.parametrize("text", ["x + \0 => x", "x + \ud800 => x", "x + \x1b[31m => x"])
def test_control_characters_are_refused_and_not_printed(text: str) -> None:
    with pytest.raises(RuleSyntaxError, match="unexpected character") as caught:
        parse_rules(HEADER + f"rule a: {text}")
    assert all(c.isprintable() or c == "\n" for c in str(caught.value))


def test_tabs_keep_the_caret_under_its_position() -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(HEADER + "\trule a:\tx + 0 =>\tyy")
    _, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :] == "yy"


# -- termination ---------------------------------------------------------------------------------


def test_every_rewrite_rule_of_the_library_goes_down() -> None:
    rules = [r for r in library_rules() if r.kind is RuleKind.REWRITE]
    assert [r.full_name for r in rules if not goes_down(r)] == []


# What an extractor finds may be as heavy as what it was given: core/rewrite/sum_order.py is asked at each use.
TESTED_AT_EACH_USE = [
    *("algebra.collect", "compare.less_group", "compare.less_common", "compare.common_less"),
    *("compare.common_equals", "divmod.div_group", "divmod.mod_group", "divmod.div_split"),
    *("divmod.mod_split", "divmod.mod_of_multiples", "divmod.div_of_multiples"),
    "divmod.mod_beside_multiples",
]


def test_rules_with_extractors_go_down_when_they_are_read_but_for_those_that_are_tested_at_each_use() -> (
    None
):
    rules = [r for r in library_rules() if r.kind is RuleKind.REWRITE and r.extractors]
    left = [r for r in rules if not goes_down(replace(r, domains=("int",)))]
    assert [r.full_name for r in left] == TESTED_AT_EACH_USE
    assert all(goes_down(r) and r.domains == ("index",) for r in left)


def test_division_that_stays_by_no_power_of_two_is_refused() -> None:
    line = (
        "rule a (T in int): (x: T) // c => cast((cast(x, uint32) * {m}) // {p}, T)"
        " where 0 <= x, 0 <= e, e * hi(x) < p, hi(x) * m < 4294967296"
        " let (m, p, e) = reciprocal(c, hi(x)) when {}, not is_power_of_two(c)"
    )
    wrong, right = [rule_of(line.replace("{}", w), "cast") for w in ("0 < p", "is_power_of_two(p)")]
    assert not goes_down(wrong)
    assert goes_down(right)


def test_extractor_whose_parts_are_used_twice_is_refused() -> None:
    once = rule_of("rule a: x % c => r where 0 <= r, r < c let (q, r) = residue(x, c)", "index")
    both = rule_of(
        "rule a: x % c => q * 0 + r where 0 <= r, r < c let (q, r) = residue(x, c)", "index"
    )
    assert goes_down(replace(once, domains=("int",)))
    assert not goes_down(replace(both, domains=("int",)))


@pytest.mark.parametrize(
    "text",
    [
        "(x * y) * y => max(x, y)",  # products of terms weigh what their factors weigh
        "max(x * c1 * c2, y) => max(x * {c1 * c2}, y)",  # what is below an atom is no part as it was
    ],
)
def test_rule_that_is_smaller_as_a_tree_only_is_refused_beside_sums(text: str) -> None:
    assert not goes_down(rule_of(f"rule a: {text}", "index"))
    assert goes_down(rule_of(f"rule a: {text}", "int"))


@pytest.mark.parametrize(
    "text",
    [
        "max(x + z, y + z) => max(x, y) + z",  # parts of sums stay as they are
        "x + z < y + z => x < y",
        "x * c1 < c2 => x < {c2 // c1}",
    ],
)
def test_rule_that_takes_parts_of_sums_goes_down_beside_them(text: str) -> None:
    assert goes_down(rule_of(f"rule a: {text}", "index"))


def test_stages_that_ask_for_the_order_of_sums_state_the_laws_of_sums() -> None:
    sets = {name: [r for r in library_rules() if r.ruleset == name] for name in library_names()}
    for stage in (*GRAPH_STAGES, *KERNEL_STAGES):
        if isinstance(stage.step, RuleSets):
            rules = [rule for name in stage.step.used(()) for rule in sets[name]]
            asks = [r for r in rules if r.kind is RuleKind.REWRITE and is_tested_at_each_use(r)]
            assert not asks or not missing_laws(rules), stage.name


def test_no_rule_of_the_library_goes_down_in_both_directions() -> None:
    turned = [
        _turned(r) for r in library_rules() if r.kind is RuleKind.REWRITE and not r.extractors
    ]
    assert [r.full_name for r in turned if r is not None and goes_down(r)] == []


def _turned(rule: Rule) -> Rule | None:
    right = rule.right[0]
    if not isinstance(right, Node):
        return None
    return Rule(rule.name, "turned", rule.kind, rule.domains, rule.types, right, (rule.left,))


def test_rule_that_swaps_with_another_names_its_partner() -> None:
    with pytest.raises(RuleError, match="'b' undoes rule 'a' of line 2"):
        parse_rules(HEADER + "rule a: x + x => x * 2\nrule b: y * 2 => y + y")


def test_longer_cycle_is_refused_at_the_rule_that_goes_up() -> None:
    cycle = "rule a: x & x => x | x\nrule b: x | x => x ^ x\nrule c: x ^ x => x & x"
    with pytest.raises(RuleError, match="does not go down"):
        parse_rules(HEADER + cycle)


def test_order_is_not_asked_for_when_rules_are_only_looked_at() -> None:
    assert len(parse_rules(HEADER + "rule a: x => x + 0", check_order=False).rules) == 1


# -- text again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", library_names())
def test_shown_rules_of_the_library_parse_to_the_same_rules(name: str) -> None:
    parsed = parse_rules(rule_file(name).read_text(), name)
    shown = show_file(parsed.ruleset, parsed.domains, parsed.rules)
    assert parse_rules(shown).rules == parsed.rules


@pytest.mark.parametrize("name", library_names())
def test_rules_of_the_library_survive_json(name: str) -> None:
    for rule in parse_rules(rule_file(name).read_text(), name).rules:
        assert rule_from_json(json.loads(json.dumps(rule_to_json(rule)))) == rule


def test_shown_rule_is_one_line() -> None:
    rule = rule_of("rule a: x % c  =>  x  where 0 <= x, x < c", "index")
    assert show_rule(rule) == (
        "rule a over index: (x: T) % (c: T) => x where 0 <= lo(x), hi(x) < c"
    )


def _terms(leaves: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    def grow(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
        unary = st.builds(lambda op, a: Node(op, (a,), "T"), st.sampled_from(["NEG", "NOT"]), inner)
        ops = st.sampled_from(
            sorted({*names.INFIX_OPS.values(), "MAX"} - {"FDIV", "CMPLT", "CMPEQ"})
        )
        binary = st.builds(lambda op, a, b: Node(op, (a, b), "T"), ops, inner, inner)
        compare = st.builds(lambda a, b: Node("CMPLT", (a, b), "bool"), inner, inner)
        select = st.builds(lambda p, a, b: Node("WHERE", (p, a, b), "T"), compare, inner, inner)
        return unary | binary | select

    return st.recursive(leaves, grow, max_leaves=8)


def _numbers() -> st.SearchStrategy[Expr]:
    bounds = [Apply(fact, (Fact(x()),)) for fact in ("lo", "hi")]
    leaves: st.SearchStrategy[Expr] = st.integers(-9, 9).map(Num)
    leaves = leaves | st.sampled_from([Name("c"), Name("d"), *bounds])

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        function = st.sampled_from(["+", "-", "*", "//", "%", "min", "gcd"])
        return st.builds(lambda f, a, b: Apply(f, (a, b)), function, inner, inner)

    return st.recursive(leaves, grow, max_leaves=5)


_LEAVES: st.SearchStrategy[Term] = st.sampled_from(
    [Var("x", "T"), Var("y", "T"), Const("c", "T"), Const("d", "T"), Lit(0, "T"), Lit(7, "T")]
)
_CONDITIONS = st.builds(
    lambda f, a, b: Apply(f, (a, b)),
    st.sampled_from(["<", "<=", "==", "!=", "divides"]),
    _numbers(),
    _numbers(),
)


@settings(max_examples=200, deadline=None)
@given(_terms(_LEAVES), _terms(_LEAVES | _numbers().map(lambda e: Calc(e, "T"))), _CONDITIONS)
def test_any_rule_makes_the_round_trip_through_text(
    inner: Term, right: Term, condition: Expr
) -> None:
    every_name = Node("ADD", (Node("MUL", (Var("x", "T"), Const("c", "T")), "T"), inner), "T")
    left = Node("ADD", (Node("MUL", (Var("y", "T"), Const("d", "T")), "T"), every_name), "T")
    types = (("T", "domain"),)
    rule = Rule("a", "demo", RuleKind.REWRITE, ("int",), types, left, (right,), (condition,))
    assert rule_of(show_rule(rule)) == rule


def test_rules_printed_in_the_readme_parse() -> None:
    readme = (Path(__file__).parent.parent / "rules" / "README.md").read_text()
    (block,) = re.findall(r"```rules\n(.*?)```", readme, re.DOTALL)
    assert len(parse_rules(block).rules) == 17


# -- the library ---------------------------------------------------------------------------------


def test_every_function_of_the_closed_set_can_be_written() -> None:
    assert names.unlisted_functions() == set()


EXAMPLES = [(rule, text) for rule in library_rules() for text in rule.examples]


@pytest.mark.parametrize(
    ("rule", "text"), EXAMPLES, ids=[f"{r.full_name}-{k}" for k, (r, _) in enumerate(EXAMPLES)]
)
def test_example_of_a_rule_shows_what_it_does(rule: Rule, text: str) -> None:
    left, right = read_example(text)
    journal = Journal()
    sets = [unproven_library()[n] for n in ("ranges", "algebra", "divmod", "compare", "where")]
    if is_linear_law(rule) and not is_collector(rule):  # sums are normal by construction
        sets = [RuleSet(s.name, [r for r in s.rules if not is_collector(r)]) for s in sets]
    rewriter = Rewriter(sets, unproven_facts(), journal)
    assert rewriter.rewrite(left) is rewriter.rewrite(right)
    assert journal.applied[rule.full_name] > 0


@pytest.mark.parametrize(
    "domain, left, right",
    [("int8", "x - 128", "x + -128"), ("signed", "x - 1", "x + -1"), ("float", "x - 0.0", "x + -0.0"), ("float", "x - inf", "x + -inf"), ("index", "(x - 1) + y", "(x + -1) + y")],
)  # fmt: skip
def test_a_number_that_is_taken_away_is_its_negative_added(
    domain: str, left: str, right: str
) -> None:
    """The literal had a type slot that nothing settled, so that no such rule was read."""
    texts = [f"ruleset a over {domain}\nrule a: {side} + y => y\n" for side in (left, right)]
    first, second = [parse_rules(text, "a.rules", check_order=False).rules[0] for text in texts]
    assert first.left == second.left


def test_a_loop_in_a_term_of_a_left_side_is_refused_where_it_stands() -> None:
    text = "ruleset t over loop\nrule a (T in int): sum[r](where(r < c, x, 0: T)) => 0"
    with pytest.raises(RuleError, match=r"'r' is a loop of the reduction.*solve\(g, r\)") as caught:
        parse_rules(text)
    assert (caught.value.line, caught.value.column) == (2, 1 + text.splitlines()[1].index("r < c"))
