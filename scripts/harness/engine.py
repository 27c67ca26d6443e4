"""One engine in one process: the tree in vllm/, in whatever state it is, and no other."""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.common import VLLM, Failure


def require_one(tree: Path = VLLM) -> None:
    """Raise Failure if this process has imported a module of the engine from elsewhere.

    Stock and patched code in one process share compile caches, environment and registries, so
    neither would be what a user runs.
    """
    package = (tree / "vllm").resolve()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] != "vllm" or not file:
            continue
        # The file itself may be a link: `make build` links the release's binaries into the tree.
        folder = Path(file).parent.resolve()
        if folder != package and package not in folder.parents:
            raise Failure(
                f"stock and patched in one process: {name} was imported from {file}, and "
                f"{package} is measured\nrun each tree in a process of its own (make ab does), and "
                "take other installations of vllm off PYTHONPATH"
            )


def put_first(tree: Path = VLLM) -> None:
    """Let `import vllm` take this tree. Raises Failure if another one was imported already."""
    require_one(tree)
    sys.path[:] = [str(tree), *(entry for entry in sys.path if entry != str(tree))]
