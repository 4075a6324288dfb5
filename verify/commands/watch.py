"""`verify-rules --watch FILE`: the verdicts on a file, anew each time that it changes.

Owns: noticing a change, clearing the screen, stopping a proof that a newer text makes idle. Does
not own: what is printed of a file (prove.py).

A proof runs in a process group of its own: a change or Ctrl-C ends it at once, solvers included.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from proofgrad.verify.commands import prove as commands
from proofgrad.verify.prove.workers import end_with, process_context

SECONDS_BETWEEN_LOOKS = 0.2
CLEAR_SCREEN = "\x1b[2J\x1b[H"

Stamp = tuple[int, int]  # time of change in ns, size; (0, 0) for a file that is not there


def watch(path: Path, jobs: int | None = None) -> int:
    """Prove the rules of `path` whenever its time or size changes, until Ctrl-C; then 0."""
    proof: BaseProcess | None = None
    seen: Stamp | None = None
    try:
        while True:
            now = _stamp(path)
            if now != seen:
                seen = now
                _stop(proof)
                proof = _start(path, jobs)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(proof)


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def _start(path: Path, jobs: int | None) -> BaseProcess:
    if sys.stdout.isatty():
        print(CLEAR_SCREEN, end="")
    print(f"{path}, {time.strftime('%H:%M:%S')}; Ctrl-C ends", flush=True)
    proof = process_context().Process(target=_prove, args=(path, jobs, os.getpid()))
    proof.start()
    return proof


def _prove(path: Path, jobs: int | None, parent: int) -> None:
    end_with(parent)
    if os.name == "posix":
        os.setpgid(0, 0)
    start = time.perf_counter()
    failed = commands.prove_files([path], jobs)
    verdict = "not everything is proved" if failed else "everything is proved"
    print(f"{verdict} ({time.perf_counter() - start:.1f} s)", flush=True)


def _stop(proof: BaseProcess | None) -> None:
    if proof is None or proof.pid is None:
        return
    if proof.is_alive():
        if os.name == "posix" and _leads_its_group(proof.pid):
            os.killpg(proof.pid, signal.SIGKILL)
        else:
            proof.kill()
    proof.join()


def _leads_its_group(pid: int) -> bool:
    """Whether the proof has left the group of this process: before that, only it may be killed."""
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False
