"""Tables of the documentation that are made from the code are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from proofgrad import Device

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.skipif(
    not Device["CPU"].target.has_fma, reason="the page is of a processor with multiply-adds"
)
def test_page_of_operations_is_what_the_code_says() -> None:
    spec = importlib.util.spec_from_file_location("make_ops", DOCS / "make_ops.py")
    assert spec is not None and spec.loader is not None
    make_ops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_ops)
    assert (DOCS / "ops.md").read_text() == make_ops.page(), "run python docs/make_ops.py"
