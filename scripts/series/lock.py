"""One run at a time, and the trace that a killed run leaves."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scripts.common import CACHE, KEEP_OPEN, say


@dataclass
class Run:
    """A run that holds the lock.

    `interrupted` is true if an earlier run was killed and what it left has not been mended yet:
    set it to False when it has.
    """

    interrupted: bool


@contextmanager
def locked(operation: str, name: str = "series") -> Iterator[Run]:
    """Hold the lock of that name: "series" for whatever changes vllm/ or patches/.

    The kernel frees the lock with its last holder, git included (see KEEP_OPEN), so a stale one
    can't block. The name in the file says only that a run did not end: what it left behind is
    read from the tree.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run of the same tools (lock: {path})")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        run = Run(interrupted=os.fstat(descriptor).st_size > 0)
        os.pwrite(descriptor, operation.encode(), 0)
        KEEP_OPEN.add(descriptor)
        try:
            yield run
        except Exception:
            # An error that is reported ends a run; Ctrl-C, which is no Exception, does not.
            _end(descriptor, run)
            raise
        _end(descriptor, run)
    finally:
        KEEP_OPEN.discard(descriptor)
        os.close(descriptor)


def _end(descriptor: int, run: Run) -> None:
    if not run.interrupted:
        os.ftruncate(descriptor, 0)
