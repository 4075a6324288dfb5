"""Pickles read without running what they ask for.

Owns: an unpickler that knows a closed list of instructions and names. A pickle is a program: it
names functions and calls them. Here every name is looked up in a table that the caller gives;
whatever is not in it is refused, and nothing is ever imported. The one in C cannot be told what to
do at a call or at an attribute, so this stands on the one in Python.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, ClassVar

from proofgrad.nn.state.files import FormatError, shown

# Instructions that data needs. Left out: those that make objects of classes (INST, OBJ, NEWOBJ),
# the extension registry (EXT), buffers from outside, names of storages as text (PERSID).
_ALLOWED = (
    "PROTO", "STOP", "FRAME", "MARK", "POP", "POP_MARK", "DUP", "GET", "BINGET", "LONG_BINGET",
    "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT",
    "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "EMPTY_SET", "ADDITEMS",
    "FROZENSET", "GLOBAL", "STACK_GLOBAL", "BINPERSID",
)  # fmt: skip
# A function copies what it is given, which a pickle may name again and again: so often as it is long, and this.
_TIMES_OF_ALL, _ITEMS_AT_LEAST = 16, 1 << 20
_PLAIN = (str, bytes, int, float, bool, type(None))
_BROKEN = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RecursionError, TypeError,
    ValueError, pickle.UnpicklingError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A function that a pickle may call."""

    function: Callable[..., Any]


def load_pickle(
    data: bytes, names: Mapping[tuple[str, str], Any], persistent: Callable[[Any], Any]
) -> Any:
    """The value of a pickle. `names`: what stands for (module, name); `persistent`: for an id.

    Raises: FormatError naming what is not allowed, or what is broken.
    """
    try:
        return _Reader(data, names, persistent).load()
    except FormatError:
        raise
    except _BROKEN as error:
        raise FormatError(f"a pickle that cannot be read: {shown(error)}") from None


def plain(key: Any) -> Any:
    """`key`, if it is text, a number, or a tuple of these: the hash of others may take for ever.

    Raises: FormatError.
    """
    parts = key if type(key) is tuple else (key,)
    if not all([type(part) in _PLAIN for part in parts]):
        raise FormatError(f"a pickle has {shown(key)} as a key; text and numbers are read")
    return key


class _Reader(pickle._Unpickler):
    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        ord(getattr(pickle, name)): pickle._Unpickler.dispatch[ord(getattr(pickle, name))]
        for name in _ALLOWED
    }

    def __init__(
        self, data: bytes, names: Mapping[tuple[str, str], Any], persistent: Callable[[Any], Any]
    ) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._names, self._persistent = names, persistent
        self._items_left = _TIMES_OF_ALL * len(data) + _ITEMS_AT_LEAST

    def find_class(self, module: str, name: str) -> Any:
        found = self._names.get((module, name))
        if found is None:
            raise FormatError(
                f"the file asks for {module}.{name}, which is not data and is not run here; save Tensors alone, as"
                " those of model.state_dict()"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def load_reduce(self) -> None:
        """Call a function of the table, and nothing else."""
        arguments, called = self.stack.pop(), self.stack[-1]
        if type(called) is not Call or type(arguments) is not tuple:
            raise FormatError("a pickle calls what is not a function it may call")
        self._items_left -= sum([len(given) for given in arguments if isinstance(given, Sized)])
        if self._items_left < 0:
            raise FormatError("a pickle has the same values copied over and over")
        self.stack[-1] = called.function(*arguments)

    def load_build(self) -> None:
        """Attributes, which only dicts of torch have (their versions), are read and forgotten."""
        self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict:
            raise FormatError("a pickle sets attributes of what is no dict")

    def load_setitem(self) -> None:
        """One value of a dict."""
        value, key = self.stack.pop(), self.stack.pop()
        self._dict()[plain(key)] = value

    def load_setitems(self) -> None:
        """The values of a dict since the last mark."""
        items = self.pop_mark()
        self._dict().update(zip(map(plain, items[::2]), items[1::2], strict=True))

    def load_dict(self) -> None:
        """A dict of what stands since the last mark."""
        items = self.pop_mark()
        self.stack.append(dict(zip(map(plain, items[::2]), items[1::2], strict=True)))

    def load_additems(self) -> None:
        """Members of a set."""
        items = self.pop_mark()
        if type(self.stack[-1]) is not set:
            raise FormatError("a pickle adds members to what is no set")
        self.stack[-1].update(map(plain, items))

    def load_frozenset(self) -> None:
        """A set of what stands since the last mark."""
        self.stack.append(frozenset(map(plain, self.pop_mark())))

    def _dict(self) -> Any:
        if type(self.stack[-1]) not in (dict, OrderedDict):
            raise FormatError("a pickle sets the items of what is no dict")
        return self.stack[-1]

    dispatch[ord(pickle.REDUCE)] = load_reduce
    dispatch[ord(pickle.BUILD)] = load_build
    dispatch[ord(pickle.SETITEM)] = load_setitem
    dispatch[ord(pickle.SETITEMS)] = load_setitems
    dispatch[ord(pickle.DICT)] = load_dict
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.FROZENSET[0]] = load_frozenset
