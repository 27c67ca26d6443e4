"""What every tool shares: the pinned base, the places of the repository, git, errors.

Standard library and git only: this runs on the system's Python, before `make build`.
For tests in scratch repositories the environment overrides what is pinned here:
QUANT_KV_ROOT, QUANT_KV_BASE_COMMIT, QUANT_KV_BASE_VERSION, QUANT_KV_SDIST_SHA256.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

ROOT = Path(os.environ.get("QUANT_KV_ROOT") or Path(__file__).resolve().parents[1]).resolve()
VLLM = ROOT / "vllm"
PATCHES = ROOT / "patches"
CACHE = ROOT / ".cache"
WORK = ROOT / ".work"

# The one place where the base is pinned. The submodule's commit is that of tag v0.31.0; the
# sdist of the release holds the same files.
BASE_VERSION = os.environ.get("QUANT_KV_BASE_VERSION") or "0.31.0"
BASE_COMMIT = os.environ.get("QUANT_KV_BASE_COMMIT") or "db9527a46873454610df6dbedf79a36d6bf1a7f6"
# sha256 of the sdists that the tools fetch: the base and the releases checked by check-upstream.
SDISTS = {
    "0.31.0": "dde46f1efbe846e5bd0c5c4ec6ec71842c42254c7ff3d9bebb2a57028715d380",
    "0.33.0": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
}
SDIST_SHA256 = os.environ.get("QUANT_KV_SDIST_SHA256") or SDISTS[BASE_VERSION]

# The identity of the commits that the tools make themselves: fixed, so that nobody has to
# configure one and the commits have the same ids everywhere.
IDENTITY_NAME = "Quantised KV maintainers"
IDENTITY_EMAIL = "maintainers@users.noreply.a-seed-ed09378e.example"

# Local settings that would change what is written, whatever the user's or the tree's
# configuration says. Passed through the environment so that git's own children see them too.
_GIT_SETTINGS = {
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.safecrlf": "false",
    "core.quotePath": "false",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "advice.detachedHead": "false",
}


# File descriptors that git inherits: a lock held this way is free only when the last git that a
# killed run left behind has ended too.
KEEP_OPEN: set[int] = set()


class Failure(Exception):
    """An expected error. The message says what is wrong and what to do about it."""


def git_env(extra: Mapping[str, str] | None = None, *, user_config: bool = False) -> dict[str, str]:
    """The environment in which git behaves the same on every machine.

    The user's own configuration is left out unless user_config (a network needs its proxies).
    Variables that point git at another repository, as a hook sets them, are dropped.
    """
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or key in ("GIT_EXEC_PATH", "GIT_SSH", "GIT_SSH_COMMAND")
    }
    env["LC_ALL"] = "C"
    env["GIT_TERMINAL_PROMPT"] = "0"
    env["GIT_EDITOR"] = "true"
    env["GIT_PAGER"] = "cat"
    if not user_config:
        env["GIT_CONFIG_GLOBAL"] = os.devnull
        env["GIT_CONFIG_NOSYSTEM"] = "1"
    for role in ("AUTHOR", "COMMITTER"):
        env[f"GIT_{role}_NAME"] = IDENTITY_NAME
        env[f"GIT_{role}_EMAIL"] = IDENTITY_EMAIL
    env["GIT_CONFIG_COUNT"] = str(len(_GIT_SETTINGS))
    for number, (key, value) in enumerate(_GIT_SETTINGS.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    env.update(extra or {})
    return env


def run_git(
    *args: str | os.PathLike[str],
    cwd: Path = VLLM,
    input: bytes | None = None,
    env: Mapping[str, str] | None = None,
    user_config: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run git and return its exit code, stdout and stderr as bytes; raises nothing on failure."""
    return subprocess.run(
        ["git", *(os.fspath(word) for word in args)],
        cwd=cwd,
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        env=git_env(env, user_config=user_config),
        capture_output=True,
        pass_fds=tuple(KEEP_OPEN),
        check=False,
    )


def git(
    *args: str | os.PathLike[str],
    cwd: Path = VLLM,
    check: bool = True,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    user_config: bool = False,
) -> str:
    """Run git in cwd and return its stdout. Raises Failure on a non-zero exit if check."""
    done = run_git(
        *args,
        cwd=cwd,
        input=None if input is None else input.encode(),
        env=env,
        user_config=user_config,
    )
    if check and done.returncode:
        words = " ".join(os.fspath(word) for word in args)
        detail = done.stderr.decode(errors="replace").strip()
        raise Failure(f"git {words} failed in {cwd} (exit {done.returncode}):\n{detail}")
    return done.stdout.decode(errors="surrogateescape")


def series_names(patches: Path = PATCHES) -> list[str]:
    """The file names in patches/series, in order; blank lines and # comments are skipped."""
    file = patches / "series"
    if not file.exists():
        return []
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def series(patches: Path = PATCHES) -> list[Path]:
    """The patches of the series, in order. Raises Failure if a listed file is missing."""
    paths = [patches / name for name in series_names(patches)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise Failure(
            f"patches/series lists what is not in patches/: {', '.join(missing)}\n"
            "restore it (git checkout -- patches), or write it from the stack (make export)"
        )
    return paths


def say(text: str) -> None:
    """Print one line of progress at once, also through a pipe."""
    print(text, flush=True)


def warn(text: str) -> None:
    """Print one line of warning to stderr."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def main(function: Callable[[], int | None]) -> NoReturn:
    """Run a CLI's function and exit: 0 or its own code, 1 on Failure, 130 on Ctrl-C."""
    try:
        sys.exit(function() or 0)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to go on", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has gone: nothing left to say, and no traceback either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
