"""Kernels that are built together: one text of several, and where each is, in this process and the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from devices import opened

from proofgrad import Device, Tensor
from proofgrad.backends.opencl.programs import Programs, joined
from proofgrad.backends.opencl.runtime import OpenCLBackend
from proofgrad.core.compile.machine.target import CompileError, Source
from proofgrad.core.disk_cache import DiskCache

HELP = "static int twice(int x) {\n  return 2 * x;\n}\n"


def kernel(name: str, body: str = "*data0 = twice(21);") -> Source:
    text = f"// {name}\n\n{HELP}\nkernel void {name}(global int *data0) {{\n  {body}\n}}\n"
    return Source("opencl", name, text, ())


def programs(folder: Path, built: list[str], identity: str = "one") -> Programs:
    return Programs(lambda text: built.append(text) or text, identity, DiskCache(folder))


def test_one_text_has_what_both_define_once_and_an_entry_for_each() -> None:
    one, two = kernel("E_2", "*data0 = twice(1);"), kernel("E_2", "*data0 = twice(2);")
    text, entries = joined([(one.entry, one.text), (two.entry, two.text)])
    assert entries == ["E_2", "E_2_n1"]
    assert text.count("static int twice") == text.count("twice(1)") == text.count("twice(2)") == 1
    assert "kernel void E_2(" in text and "kernel void E_2_n1(" in text
    assert joined([("E_2", one.text)]) == (one.text, ["E_2"])


def test_kernels_are_built_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    built: list[str] = []
    first, later = programs(tmp_path, built), programs(tmp_path, built)
    one, two, three = kernel("a"), kernel("b"), kernel("c")
    first.add([one, two, one])
    first.add([two, three])
    assert len(built) == 2 and first.kernel(one) == (built[0], "a")
    assert [later.kernel(source) for source in (two, one, three)] == [
        (built[0], "b"), (built[0], "a"), (three.text, "c")
    ]  # fmt: skip
    assert built[2:] == built[:2]
    assert programs(tmp_path, built, "another device").kernel(two) == (two.text, "b")


@pytest.fixture
def machine() -> OpenCLBackend:
    found = Device[opened("CL")]
    assert isinstance(found, OpenCLBackend)
    return found


def test_error_of_kernels_built_together_is_of_the_one_that_is_refused(
    machine: OpenCLBackend,
) -> None:
    texts = [kernel("a"), kernel("b", "nonsense;"), kernel("c")]
    made = machine.compile_together(texts)
    assert next(made).entry == "a"
    with pytest.raises(CompileError, match="refused line 8 of the kernel:\n +nonsense;"):
        next(made)
    assert next(made).entry == "c"


def test_kernels_that_wait_become_one_program_and_give_their_values(
    machine: OpenCLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []
    usual = OpenCLBackend.compile_together

    def compile_together(self: OpenCLBackend, sources: Any) -> Any:
        together.append(len(sources))
        return usual(self, sources)

    monkeypatch.setattr(OpenCLBackend, "compile_together", compile_together)
    x = Tensor([1.0, 2.0, 3.0], "CL").realize()
    values = [(x * (k + 0.8125)).contiguous() for k in range(9)]
    assert sum(values).tolist() == [(36 + 9 * 0.8125) * k for k in (1, 2, 3)]  # type: ignore[union-attr]
    assert 1 <= len(together) <= sum(together)
