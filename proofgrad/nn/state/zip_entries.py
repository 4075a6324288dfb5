"""The bytes of one entry of a zip archive, compared with their checksum.

Owns: where an entry lies, unpacking it to the size that it states and no further, its checksum. Does not own: names,
limits, which entries there are (archive.py). The reader of the standard library unpacks first and cuts to the size
afterwards, so that a few bytes may fill all memory. Format: https://pkware.cachefly.net/webdocs/APPNOTE/APPNOTE-6.3.9.TXT
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zipfile
import zlib

from proofgrad.nn.state.files import FormatError, shown

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LZMA_HEADER = struct.Struct(
    "<2xHBI"
)  # size of what follows: the three numbers in one, and the window
_LEAST_WINDOW = 4096
_ENCRYPTED = 1


def entry_bytes(data: memoryview, entry: zipfile.ZipInfo) -> memoryview:
    """What an entry of the archive `data` holds: a part of it, if it is not compressed.

    Raises: FormatError, and what decompressors raise at data that is not theirs.
    """
    stored = _stored(data, entry)
    name = shown(entry.filename)
    if entry.compress_type == zipfile.ZIP_STORED:
        found = stored
    else:
        found = memoryview(_unpacked(stored, entry))
    if len(found) != entry.file_size:
        raise FormatError(f"a zip archive says wrongly how large its file {name} is")
    return found


def check_sum(found: memoryview, entry: zipfile.ZipInfo) -> None:
    """Raises: FormatError for bytes that are not those that were written."""
    if zlib.crc32(found) != entry.CRC:
        name = shown(entry.filename)
        raise FormatError(
            f"the file {name} of a zip archive is damaged: its checksum is another; get the archive anew"
        )


def _stored(data: memoryview, entry: zipfile.ZipInfo) -> memoryview:
    """The bytes of an entry as they lie in the archive; its header there says how far on they start."""
    name, start = shown(entry.filename), entry.header_offset
    if not 0 <= start <= len(data) - _LOCAL_HEADER.size:
        raise FormatError(f"a zip archive says wrongly where its file {name} is")
    mark, name_size, extra_size = _LOCAL_HEADER.unpack_from(data, start)
    begin = start + _LOCAL_HEADER.size + name_size + extra_size
    end = begin + entry.compress_size
    if mark != b"PK\3\4" or end > len(data):
        raise FormatError(f"a zip archive says wrongly where its file {name} is")
    if entry.flag_bits & _ENCRYPTED:
        raise FormatError(f"the file {name} of a zip archive is encrypted")
    return data[begin:end]


def _unpacked(stored: memoryview, entry: zipfile.ZipInfo) -> bytes:
    """At most one byte more than the entry states, by which it is seen that it states too few."""
    most = entry.file_size + 1
    match entry.compress_type:
        case zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(stored, most)
        case zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor().decompress(stored, most)
        case zipfile.ZIP_LZMA:
            return _lzma(stored, entry.file_size).decompress(stored[_LZMA_HEADER.size :], most)
        case other:
            raise FormatError(
                f"the file {shown(entry.filename)} of a zip archive is compressed in a way ({other}) that is not"
                " read here"
            )


def _lzma(stored: memoryview, size: int) -> lzma.LZMADecompressor:
    """A window of more bytes than there are is no use, and would take memory."""
    count, numbers, window = _LZMA_HEADER.unpack_from(stored)
    if count != 5:
        raise FormatError("a zip archive has a header of LZMA that is not one")
    window = max(_LEAST_WINDOW, min(window, size))
    context, positions = numbers % 9, numbers // 9
    filters = {"lc": context, "lp": positions % 5, "pb": positions // 5, "dict_size": window}
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, **filters}])
