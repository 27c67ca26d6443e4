"""Every patch green on its own: `make check-series`.

Each patch in order, in a scratch tree: it applies; ruff and mypy pass on the files that it touches,
in the versions and with the configuration of vLLM (mypy: errors that the files had before don't
count); the tests that it carries pass at that place, where no later patch is. Tests run without a
GPU, with interpreted kernels, as tests/upstream/ runs the release's.

What passed is kept in .cache/check-series/ by content and not run again. CI runs the tests with
`--tests below`: those of the last patch run in `make test`, which is that place. `make lint` has
other checks of the same files (ruff as pinned here, our own mypy on scripts/), and none of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scripts.common import BASE_VERSION, VLLM, WORK, Failure, git, say, series
from scripts.series import apply, checks, scratch, upstream
from scripts.series.checks import MYPY, RUFF, TESTS, Place, Verdict
from scripts.series.lock import locked

APPLIES = "applies"
ALL, BELOW, NONE = "all", "below", "none"
_KINDS = (APPLIES, RUFF, MYPY, TESTS)


def check_series(only: str | None = None, tests: str = ALL, version: str = BASE_VERSION) -> int:
    """Check the patches (only: the one of that number) and print a table; 1 if one fails.

    `tests` says at which places the carried tests run: ALL, BELOW the last patch, or NONE. With
    another version than the base's, its ports are checked on that release. Raises Failure if
    there is no such patch, or if tools or release can't be had.
    """
    patches = series()
    chosen = [patch for patch in patches if matches(patch, only)]
    if not chosen:
        names = ", ".join(patch.name for patch in patches) or "none"
        raise Failure(f"no patch has the number {only} (patches: {names})")
    with locked("check-series", name="check-series") as run:
        run.interrupted = False
        tree = WORK / "check-series" / version
        rows = list(_rows(tree, version, patches, chosen, tests))
    say(table(rows))
    reached = {patch for patch, _ in rows}
    left = [patch.name for patch in chosen if patch not in reached]
    if left:
        say(f"not reached: {', '.join(left)}")
    failed = [patch for patch, verdicts in rows if not all(one.passed for one in verdicts)]
    if not failed and not left:
        say(f"green on v{version}, each at its own place: {len(rows)} of {len(patches)} patches")
    return 1 if failed or left else 0


def matches(patch: Path, only: str | None) -> bool:
    """True if `only` is the patch's number, with or without its zeros, or is empty."""
    number = upstream.number(patch)
    return not only or (only.isdigit() and number.isdigit() and int(only) == int(number))


def _rows(
    tree: Path, version: str, patches: list[Path], chosen: list[Path], tests: str
) -> Iterator[tuple[Path, list[Verdict]]]:
    """The verdicts of each chosen patch. A patch that doesn't apply ends them."""
    before = scratch.checked_out(version, tree)
    lend_binaries(tree)
    for number, patch in enumerate(patches, 1):
        label = f"[{number}/{len(patches)}] {patch.name}:"
        try:
            file = put_on(tree, patch, version)
        except Failure as failure:
            say(f"{label} {APPLIES} FAILED\n{failure}")
            yield patch, [Verdict(APPLIES, False, detail=str(failure))]
            return
        place = Place(tree, file, before, git("rev-parse", "HEAD", cwd=tree).strip())
        before = place.commit
        if patch in chosen:
            verdicts = [Verdict(APPLIES, True, files=[file.name])]
            last = number == len(patches)
            wanted = tests == ALL or (tests == BELOW and not last)
            for kind in _KINDS[1:] if wanted else _KINDS[1:-1]:
                verdicts.append(judged(place, kind, label))
            yield patch, verdicts


def judged(place: Place, kind: str, label: str) -> Verdict:
    """One verdict, said at once."""
    verdict = checks.judge(place, kind)
    took = "as before" if verdict.known else f"{verdict.seconds} s"
    say(f"{label} {kind} {verdict.words()} ({took})")
    if verdict.needs_gpu:
        say(f"    needs a GPU (make test-gpu): {', '.join(verdict.needs_gpu)}")
    if not verdict.passed:
        say("\n".join(f"    {line}" for line in verdict.detail.splitlines()))
    return verdict


def put_on(tree: Path, patch: Path, version: str) -> Path:
    """Apply the patch, or its port, as the next commit; returns the file that was applied.

    Raises Failure if it doesn't apply with all its context.
    """
    if version == BASE_VERSION:
        apply.apply_patch(tree, patch)
        return patch
    file = upstream.port_of(patch, version)
    outcome = upstream.try_patch(tree, patch, file)
    if outcome.result not in upstream.GOOD:
        raise Failure(
            f"{file.name} on v{version}: {outcome.result} {outcome.note}\n"
            f"make check-upstream VERSION={version} shows the hunks"
        )
    return file


def lend_binaries(tree: Path) -> None:
    """Link what `make build` has put beside the Python files of vllm/, so that tests can run."""
    listed = git("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", "vllm")
    for name in listed.split("\0")[:-1]:
        target = tree / name
        if "__pycache__" not in Path(name).parts and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(VLLM / name)


def table(rows: list[tuple[Path, list[Verdict]]]) -> str:
    """A row for each patch, a column for each check."""
    from tabulate import tabulate  # in .venv only

    cells = []
    for patch, verdicts in rows:
        words = {verdict.kind: verdict.words() for verdict in verdicts}
        took = sum(verdict.seconds for verdict in verdicts if not verdict.known)
        cells.append([patch.stem[:44], *(words.get(kind, "-") for kind in _KINDS), f"{took:.0f}"])
    return tabulate(cells, headers=["patch", *_KINDS, "seconds"], disable_numparse=True)
