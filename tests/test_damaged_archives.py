"""Archives of which bytes changed or that lie about sizes: refused, in little memory.

What readers make of archives that are well formed is in test_nn_state.py.
"""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from proofgrad import Tensor
from proofgrad.nn import state
from proofgrad.nn.state import FormatError

FILES = {"a.bin": b"\1\2\3", "folder/b.bin": b"", "folder/c.bin": b"beginning" * 200 + b"the end"}


def archive_of(files: dict[str, bytes], way: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(data := io.BytesIO(), "w", way) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def contents(found: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(tensor.tolist()) for name, tensor in found.items()}


@pytest.mark.parametrize("way", ["DEFLATED", "BZIP2", "LZMA"])
def test_an_archive_unpacks_to_no_more_than_it_says(way: str) -> None:
    """Unpacked before it is cut to size, a file of a megabyte that says it has ten bytes would be a gigabyte."""
    whole = archive_of({"zeros": bytes(1 << 26)}, getattr(zipfile, f"ZIP_{way}"))
    assert len(whole) < 1 << 17
    lying = whole.replace((1 << 26).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lying != whole
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"wrongly how large its file 'zeros' is"):
            state.zip_extract(Tensor(lying))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert (
        contents(state.zip_extract(Tensor(archive_of(FILES, getattr(zipfile, f"ZIP_{way}")))))
        == FILES
    )


@pytest.mark.parametrize("name", FILES)
def test_every_bit_of_a_file_in_an_archive_counts(name: str) -> None:
    whole = archive_of(FILES)
    for position in (0, len(FILES[name]) - 1) if FILES[name] else ():
        start = whole.index(FILES[name]) + position
        flipped = whole[:start] + bytes([whole[start] ^ 16]) + whole[start + 1 :]
        with pytest.raises(FormatError, match=rf"'{name}' of a zip archive is damaged"):
            state.zip_extract(Tensor(flipped))


def test_a_bit_that_changed_in_weights_is_said(tmp_path: Path) -> None:
    """Of what torch wrote without checksums, which are 0 then, nobody can tell."""
    torch, path = pytest.importorskip("torch"), tmp_path / "a.pt"
    weights = {"w": torch.arange(4.0) + 100}
    for has_sums in (True, False):
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(has_sums)
        try:
            torch.save(weights, path)
        finally:
            torch.serialization.set_crc32_options(before)
        assert state.torch_load(path)["w"].tolist() == [100, 101, 102, 103]
    torch.save(weights, path)
    whole, values = bytearray(path.read_bytes()), weights["w"].numpy().tobytes()
    whole[whole.index(values)] ^= 1
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="its checksum is another; get the archive anew"):
        state.torch_load(path)


def test_files_of_an_archive_do_not_share_their_bytes() -> None:
    """A thousand names of the same bytes would be read a thousand times."""
    whole = archive_of({"a": bytes(500), "b": bytes(500)})
    second = whole.index(b"PK\3\4", 1)
    both = whole.replace(second.to_bytes(4, "little"), bytes(4))  # where the second file is
    joined = both[:second] + both[whole.index(b"PK\1\2") :]
    directory = whole.index(b"PK\1\2")
    joined = joined.replace(directory.to_bytes(4, "little"), second.to_bytes(4, "little"))
    with pytest.raises(FormatError, match="lie over each other"):
        state.zip_extract(Tensor(joined))
