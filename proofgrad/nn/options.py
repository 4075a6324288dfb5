"""Options of other packages that layers, optimizers and schedules here do not take.

Owns: what to write in place of each, and the error. It looks only at calls that name an option.
"""

from __future__ import annotations

from inspect import CO_VARKEYWORDS, unwrap
from typing import TYPE_CHECKING, Any, NoReturn

_OURS = __name__.rpartition(".")[0]  # what a class made elsewhere takes is its own affair
INSTEAD = {
    "bias": "set layer.bias = None of a layer that has one",
    "device": "set Device.DEFAULT, or call tensor.to_(device) of each of nn.state.get_parameters(layer)",
    "dtype": "make the layer within `with Context(DEFAULT_FLOAT='half'):`, or another type there",
    "padding_mode": "call x.pad(sizes, mode=...) before a layer without padding",
    "padding_idx": "write ids.ne(i).unsqueeze(-1).where(layer(ids), 0)",
    "threshold": "leave it out: softplus does not overflow",
    "maximize": "call (-loss).backward()",
    "foreach": "leave it out, or see fused=",
    "capturable": "leave it out: TinyJit records steps",
    "differentiable": "leave it out",
    "verbose": "print optimizer.lr.item()",
    "last_epoch": "make the schedule as at first and load its state by nn.state.load_state_dict",
}  # fmt: skip


class KnownOptions:
    """What is made by a call; one that names an option it does not have is told what does the same."""

    if not TYPE_CHECKING:  # the type of a call is that of __init__

        def __new__(cls, *args: Any, **options: Any) -> Any:
            if cls.__init__ is object.__init__:  # which takes anything where there is a __new__
                if args or options:
                    raise TypeError(f"{cls.__name__} takes no arguments")
            elif options and cls.__init__.__module__.startswith(_OURS):
                code = unwrap(cls.__init__).__code__
                known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
                for name in () if code.co_flags & CO_VARKEYWORDS else options.keys() - known:
                    _refuse(cls.__name__, name, known)
            return super().__new__(cls)


def _refuse(kind: str, name: str, known: tuple[str, ...]) -> NoReturn:
    told = f"; {INSTEAD[name]}" if name in INSTEAD else ""
    raise TypeError(f"{kind} takes {', '.join(known)}, and not {name}={told}")
