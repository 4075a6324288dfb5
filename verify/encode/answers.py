"""Asking z3, so that Ctrl-C ends the call.

z3 takes an interrupt for itself and says that it does not know; without that Python sees one only when the call is over.
Owns: waiting for the answer. Does not own: what is asked, limits, models (prove/solve.py).
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def check(solver: Any) -> Any:
    """What z3 answers. Raises: KeyboardInterrupt at once, where Python would."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not callable(signal.getsignal(signal.SIGINT)):
        return solver.check()
    solver.set(ctrl_c=False)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(solver.check)
        try:
            return answer.result()
        except BaseException:
            solver.interrupt()
            raise
