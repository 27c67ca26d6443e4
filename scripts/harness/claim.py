"""Who measures on a GPU: one run that times, or several that don't."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from scripts.common import Failure


@contextmanager
def claimed(uuids: list[str], *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of each GPU, for every clone of the repository on this machine.

    shared: beside other shared claims, never beside one that isn't. The kernel frees a lock with
    its process, so a crash leaves none behind. Raises Failure if another run is in the way.
    """
    folder = Path(tempfile.gettempdir()) / "quant-kv-gpu-locks"
    folder.mkdir(exist_ok=True)
    # Other users lock here too. Whoever made the folder has opened it to them.
    with suppress(PermissionError):
        folder.chmod(0o777)
    with ExitStack() as held:
        for uuid in sorted(uuids):
            path = folder / f"{uuid}.lock"
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, file)
            with suppress(PermissionError):
                os.fchmod(file, 0o666)
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Failure(
                    f"another run of these scripts measures on {uuid} (lock: {path})\n"
                    "wait for it, end it (Ctrl-C), or name another GPU (CUDA_VISIBLE_DEVICES)"
                ) from None
        yield
