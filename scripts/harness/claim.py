"""One run at a time on a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from scripts.common import Failure


@contextmanager
def claimed(uuids: list[str]) -> Iterator[None]:
    """Hold the lock of each GPU, for every clone of the repository on this machine.

    The kernel frees it with its process, so a crash leaves none behind. Raises Failure if another
    run holds one.
    """
    folder = Path(tempfile.gettempdir()) / "quant-kv-gpu-locks"
    folder.mkdir(exist_ok=True)
    # Other users lock here too. Whoever made the folder has opened it to them.
    with suppress(PermissionError):
        folder.chmod(0o777)
    with ExitStack() as held:
        for uuid in sorted(uuids):
            lock = FileLock(folder / f"{uuid}.lock", timeout=0, mode=0o666)
            try:
                held.enter_context(lock)
            except Timeout:
                raise Failure(
                    f"another run of these scripts measures on {uuid} (lock: {lock.lock_file})\n"
                    "wait for it, end it (Ctrl-C), or name another GPU (CUDA_VISIBLE_DEVICES)"
                ) from None
        yield
