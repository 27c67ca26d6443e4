"""A small repository like ours in a scratch folder: a tiny base and six patches on it."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = "0.31.0"
COMMIT = "1234567890abcdef1234567890abcdef12345678"
NUMBERED = "".join(f"line {number}\n" for number in range(1, 61))
BASE_FILES = {
    ".gitignore": "*.so\n/vllm/_version.py\n__pycache__/\n",
    "PKG-INFO": f"Version: {VERSION}\n",
    "vllm/__init__.py": "",
    "vllm/_version.py": f"version = '{VERSION}'\n",
    "vllm/a.py": NUMBERED,
    "vllm/old_name.py": NUMBERED.replace("line", "row"),
    "vllm/gone.py": "unused = 1\n",
    "docs/crlf.txt": "first\r\nsecond\r\nthird\r\n",
    "tools/run.sh": "#!/bin/sh\necho run\n",
    "a folder/with space.txt": "words\n",
}
REASON = (
    "The reason is written here in enough words that a reader who has never seen the fault\n"
    "knows what went wrong, for whom, and how the change mends it without breaking others.\n\n"
    "Upstream-Status: Pending\n"
    "Signed-off-by: Some Body <some.body@example.com>\n"
)
SUBJECTS = (
    "[Core] Change both ends of a",
    "[Kernel] Add a kernel",
    "[Docs] Change a and a file with CRLF",
    "[Core] Rename a file",
    "[Core] Edit the kernel, drop a file",
    "[Tools] Make the tool executable – at last",
)


def replace(path: Path, old: str, new: str) -> None:
    """Replace text in a file, byte for byte otherwise; the old text must be there."""
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))


@dataclass
class Lab:
    """A scratch copy of the repository's layout, and the tools run on it."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def vllm(self) -> Path:
        return self.root / "vllm"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "scripts.series", *args]

    def environment(self, **env: str) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        return {**clean, **self.env, "QUANT_KV_ROOT": str(self.root), **env}

    def run(self, *args: str, code: int = 0, **env: str) -> str:
        """Run a command of scripts.series; its exit code must be `code`. Returns all output."""
        done = subprocess.run(
            self.command(*args),
            cwd=REPOSITORY,
            env=self.environment(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def git(self, *args: str, cwd: Path | None = None) -> str:
        """Run git as a user would, in vllm/ unless cwd is given."""
        return subprocess.run(
            ["git", "-c", "user.name=Some Body", "-c", "user.email=some.body@example.com", *args],
            cwd=cwd or self.vllm,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def commit(self, subject: str, body: str = REASON) -> None:
        """Commit everything in vllm/ as a developer would."""
        self.git("add", "--all")
        self.git("commit", "--quiet", f"--message={subject}", f"--message={body}")

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").strip()

    def depth(self) -> int:
        """Commits above the base."""
        return len(self.git("rev-list", "base..HEAD").split())

    def changes(self) -> str:
        return self.git("status", "--porcelain", "--untracked-files=all")

    def names(self) -> list[str]:
        return (self.patches / "series").read_text().split()

    def patch(self, number: int) -> Path:
        return self.patches / self.names()[number - 1]

    def exported(self) -> dict[str, bytes]:
        """The bytes of everything under patches/."""
        files = (path for path in self.patches.rglob("*") if path.is_file())
        return {path.relative_to(self.patches).as_posix(): path.read_bytes() for path in files}

    def contents(self) -> dict[str, bytes]:
        """The bytes of every file in vllm/."""
        return {
            path.relative_to(self.vllm).as_posix(): path.read_bytes()
            for path in self.vllm.rglob("*")
            if path.is_file() and ".git" not in path.relative_to(self.vllm).parts
        }


def make_sdist(files: dict[str, str], version: str = VERSION) -> bytes:
    """A source distribution of the files, the same bytes every time."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"vllm-{version}/{name}")
            info.size = len(content.encode())
            info.mode = 0o664
            info.uid = info.gid = 12345
            archive.addfile(info, io.BytesIO(content.encode()))
    return gzip.compress(raw.getvalue(), mtime=0)


def _edit_1(tree: Path) -> None:
    replace(tree / "vllm/a.py", "line 3\n", "line three\n")
    replace(tree / "vllm/a.py", "line 55\n", "line fifty-five\nand more\n")


def _edit_2(tree: Path) -> None:
    (tree / "vllm/ops").mkdir()
    (tree / "vllm/ops/kernel.py").write_text("tile = 64\n" * 20)
    (tree / "tests").mkdir()
    (tree / "tests/test_kernel.py").write_text("def test_tile(): ...\n")


def _edit_3(tree: Path) -> None:
    replace(tree / "vllm/a.py", "line 30\n", "line thirty\n")
    replace(tree / "docs/crlf.txt", "second\r\n", "2nd\r\n")


def _edit_4(tree: Path) -> None:
    (tree / "vllm/old_name.py").rename(tree / "vllm/new_name.py")
    replace(tree / "vllm/new_name.py", "row 9\n", "row nine\n")


def _edit_5(tree: Path) -> None:
    replace(tree / "vllm/ops/kernel.py", "tile = 64\n", "tile = 128\n")
    (tree / "vllm/gone.py").unlink()
    (tree / "vllm/table.bin").write_bytes(bytes(range(256)))


def _edit_6(tree: Path) -> None:
    (tree / "tools/run.sh").chmod(0o755)
    replace(tree / "a folder/with space.txt", "words\n", "other words\n")


EDITS = (_edit_1, _edit_2, _edit_3, _edit_4, _edit_5, _edit_6)
