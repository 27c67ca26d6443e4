"""A small repository whose vllm/ holds a base and patches that name kernels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from series_lab import COMMIT, REASON, REPOSITORY, Lab

# Path below vllm/ -> text; None: the file goes.
Files = Mapping[str, str | None]
# Subject, body and files of each commit.
Patches = list[tuple[str, str, Files]]

MANY = 20


def kernel(name: str) -> str:
    """The body of a patch that names a kernel."""
    return f"{REASON}Kernel: {name}\n"


BASE: Files = {
    ".gitignore": "__pycache__/\n",
    "vllm/__init__.py": "",
    "vllm/attn.py": "KERNEL = 'stock'\nPREFILL = 'stock'\n",
    "vllm/other.py": "PLAN = 'stock'\n",
    "vllm/old_prefill.py": "GONE = 'later'\n",
    "tests/test_attn.py": "STOCK = True\n",
}
PATCHES: Patches = [
    ("[Core] Plan better", REASON, {"vllm/other.py": "PLAN = 'ours'\n"}),
    (
        "[Attention] INT8 decode",
        kernel("int8_decode"),
        {
            "vllm/attn.py": "KERNEL = 'fused'\nPREFILL = 'stock'\n",
            "vllm/quant/__init__.py": "",
            "vllm/quant/decode.py": "SPEED = 2\n",
            **{f"vllm/quant/tile_{n}.py": f"TILE = {n}\n" for n in range(MANY)},
            "vllm/other.py": "PLAN = 'ours'\nINT8 = True\n",
            "tests/test_attn.py": "STOCK = False\n",
        },
    ),
    (
        "[Attention] INT4 decode",
        kernel("int4_decode"),
        {"vllm/int4.py": "from vllm.quant import decode\n"},
    ),
    (
        "[Attention] Prefill",
        kernel("prefill"),
        {
            "vllm/attn.py": "KERNEL = 'fused'\nPREFILL = 'ours'\n",
            "vllm/prefill.py": "",
            "vllm/old_prefill.py": None,
        },
    ),
    ("[Core] Unrelated", REASON, {"vllm/unrelated.py": "import vllm.other\n"}),
]


class Stack(Lab):
    """A scratch repository whose commands may be any tool: run("scripts.ab", "status")."""

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", *args]

    def start(self, *args: str) -> subprocess.Popen[str]:
        """`python ARGS` in the background, its output a pipe."""
        return subprocess.Popen(
            [sys.executable, *args],
            cwd=REPOSITORY,
            env=self.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def write(self, files: Files, below: str = "vllm") -> None:
        """Write files in vllm/ (or elsewhere), folders included; None removes one."""
        for name, text in files.items():
            path = self.root / below / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def tree(self, revision: str, *names: str) -> dict[str, bytes]:
        """The files of a revision, all or those below the names."""
        listed = self.git("ls-tree", "-r", "--name-only", revision, "--", *names).split()
        return {name: self.git("show", f"{revision}:{name}").encode() for name in listed}

    def copy(self, folder: Path) -> Stack:
        """The same repository once more, below folder."""
        return Stack(shutil.copytree(self.root, folder / self.root.name), dict(self.env))


def make(folder: Path, base: Files = BASE, patches: Patches = PATCHES) -> Stack:
    """A repository below folder, in a path with a space, with all patches applied."""
    stack = Stack(folder / "a project", {"QUANT_KV_BASE_COMMIT": COMMIT})
    stack.vllm.mkdir(parents=True)
    stack.patches.mkdir()
    stack.git("init", "--quiet")
    for subject, body, files in (("The base", f"Base-commit: {COMMIT}", base), *patches):
        stack.write(files)
        stack.commit(subject, body)
    return stack
