"""python -m scripts.ab old KERNEL | new | status | bench KERNEL BENCH [--pairs N] [--flags ...]"""

from __future__ import annotations

import argparse
import shlex

from scripts.ab.bench import LEAST_PAIRS, bench, module_of
from scripts.ab.kernels import Kernel, kernels
from scripts.ab.swap import NEW, Swapper, lock
from scripts.common import VLLM, Failure, main, say
from scripts.series.base import require
from scripts.series.tree import unfinished


def cli() -> int:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m scripts.ab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    old = commands.add_parser("old", help="put the pre-patch files of a kernel into vllm/")
    old.add_argument("kernel", nargs="?", default="")
    commands.add_parser("new", help="restore the patched files")
    commands.add_parser("status", help="tell which version is in vllm/")
    runs = commands.add_parser("bench", help="bench old and new alternately")
    runs.add_argument("kernel", nargs="?", default="")
    runs.add_argument("bench", nargs="?", default="")
    runs.add_argument("--pairs", type=int, default=LEAST_PAIRS)
    runs.add_argument("--flags", default="", type=shlex.split, help="of the bench, such as shapes")
    options = parser.parse_args()

    require()
    known = kernels()
    swapper = Swapper(known)
    if options.command == "status":
        return _status(swapper)
    if options.command == "new":
        with lock():
            _put(swapper, NEW)
        return 0
    _known(options.kernel, known)
    found = unfinished(VLLM)
    if found:
        raise Failure(f"vllm/ is in the middle of a git operation ({found}): finish it first")
    if options.command == "old":
        with lock():
            _put(swapper, options.kernel)
    else:
        module_of(options.bench)
        with lock():
            bench(swapper, options.kernel, options.bench, options.pairs, options.flags)
    return 0


def _known(name: str, known: dict[str, Kernel]) -> None:
    if name in known:
        return
    names = ", ".join(sorted(known)) or "none"
    if not name:
        raise Failure(f"name a kernel: KERNEL=... (kernels of the applied patches: {names})")
    raise Failure(
        f"no applied patch has the trailer `Kernel: {name}` (kernels of the applied patches: "
        f"{names})\nif patches/ has it, run `make apply`"
    )


def _put(swapper: Swapper, version: str) -> None:
    changed = swapper.put(version)
    files = f"{changed} file{'' if changed == 1 else 's'}"
    if version == NEW:
        say(f"new is in ({files} restored)" if changed else "new is in already: nothing to do")
    elif not changed:
        say(f"old {version} is in already: nothing to do")
    else:
        say(f"old {version} is in ({files} swapped); `make ab-new` restores. Taken off:")
        for subject in swapper.kernels[version].patches:
            say(f"  {subject}")


def _status(swapper: Swapper) -> int:
    """Print the state; 0 for one whole version, 1 for an interrupted swap or modifications."""
    state = swapper.state()
    if not swapper.kernels:
        say("new: no applied patch names a kernel")
        return 0
    if state.inside == (NEW,):
        say(f"new (kernels: {', '.join(sorted(swapper.kernels))})")
        return 0
    if state.inside:
        say(f"old {', '.join(state.inside)}: {len(state.old)} files; `make ab-new` restores")
        return 0
    if state.modified:
        say("modified: these files in vllm/ are neither old nor new:")
        for path in state.modified:
            say(f"  {path}")
    if state.old:
        say("half swapped: these files are old, the others new; `make ab-new` restores:")
        for path in state.old:
            say(f"  {path}")
    return 1


main(cli)
