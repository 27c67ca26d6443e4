"""Runs a program from standard input under limits; `sandbox` starts it, as a file of its own.

`python -I guard.py TOKEN SECONDS BYTES`, in the folder that the program may write to. TOKEN is
printed only if the program ran to its end.
"""

import os
import resource
import sys
from typing import Any, NoReturn

FILE_BYTES = 16 << 20
OPEN_FILES = 64
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events whose first arguments, so many, are paths that would be changed.
CHANGES = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.mkfifo": 1,
    "os.mknod": 1,
    "os.remove": 1,
    "os.removexattr": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.setxattr": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
}
# Events, by how their names begin, that no answer to a question needs.
DENIED = (
    "ctypes.",
    "fcntl.",
    "os.chdir",
    "os.exec",
    "os.fchdir",
    "os.fork",
    "os.kill",
    "os.posix_spawn",
    "os.putenv",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pty.",
    "resource.",
    "signal.",
    "socket.",
    "subprocess.",
    "syslog.",
)
MODULES = {"_ctypes", "_posixsubprocess", "ctypes"}


def limit(seconds: int, size: int) -> None:
    """Processor time, address space, file size and open files of this process."""
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def watch(folder: str) -> None:
    """From here on refuse what would reach beyond the folder, or other processes."""

    def refuse(what: str) -> NoReturn:
        raise PermissionError(f"not allowed here: {what}")

    def check_path(path: Any, event: str) -> None:
        # A number is a file that is open already.
        if isinstance(path, int):
            return
        real = os.path.realpath(os.fsdecode(path))
        if real != os.devnull and os.path.commonpath([real, folder]) != folder:
            refuse(f"{event} {real}")

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            # A folder that is open would be a way around its path.
            if flags & WRITES or (not isinstance(path, int) and os.path.isdir(path)):
                check_path(path, event)
        elif event in CHANGES:
            for path in args[: CHANGES[event]]:
                check_path(path, event)
        elif event.startswith(DENIED) or (event == "import" and args[0] in MODULES):
            refuse(event)

    sys.addaudithook(hook)


def run() -> None:
    token, seconds, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    del sys.argv[1:]
    code = compile(sys.stdin.read(), "answer.py", "exec")
    told = os.dup(1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    limit(seconds, size)
    watch(os.path.realpath(os.getcwd()))
    exec(code, {"__name__": "__main__"})
    os.write(told, token.encode())


if __name__ == "__main__":
    run()
