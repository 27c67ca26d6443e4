"""`python -m scripts.build`: environment and binaries; with `lock`: new lock files."""

import argparse
import time

from scripts.build import binaries, environment, lock
from scripts.build.target import detect
from scripts.common import main


def run() -> None:
    """Build what is missing; a build that is up to date takes about a second."""
    parser = argparse.ArgumentParser(prog="python -m scripts.build", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["lock"], help="rewrite the lock files")
    if parser.parse_args().what == "lock":
        lock.write()
        return
    start = time.monotonic()
    target = detect()
    # Both run: `or` would leave the second out.
    changed = any([binaries.ensure(target), environment.ensure(target)])
    state = f"done in {time.monotonic() - start:.0f} s" if changed else "up to date"
    print(f"build ({target.device}): {state}")


if __name__ == "__main__":
    main(run)
