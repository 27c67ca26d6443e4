"""`make pr PATCH=0003`: a folder from which a person can send one patch upstream. Nothing is sent.

.work/pr/NNNN-slug/ holds

vllm/            a clone on branch NNNN-slug: the base, what the patch needs, the patch
patches/         the same commits as files
PULL_REQUEST.md  the text, by the release's own template, from the patch's message
SEND.md          the steps that are left

Which earlier patches a patch needs is found from content: those without which it doesn't apply with
all its context. What only shows at run time is said in its message, as a trailer `Depends: 0001`;
the checks of scripts.series check run on the branch, where a forgotten one fails. What a person has
to fill (sign-off, tools, the state of near pull requests) is marked FILL and listed at the end. A
folder that was edited is checked, not written again.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

from scripts.common import BASE_COMMIT, BASE_VERSION, WORK, Failure, git, say, series
from scripts.series import check, checks, export, patchfile, pull_text, scratch, upstream
from scripts.series.checks import MYPY, RUFF, TESTS, Place, Verdict
from scripts.series.lock import locked

_TEMPLATE = ".github/PULL_REQUEST_TEMPLATE.md"
_TEXT, _STEPS, _MADE = "PULL_REQUEST.md", "SEND.md", ".made.json"
_KERNEL_PATHS = ("vllm/v1/attention/", "tests/kernels/")
_ON_CPU = 'TRITON_INTERPRET=1 CUDA_VISIBLE_DEVICES=""'


def make_pr(number: str, version: str = BASE_VERSION, *, fresh: bool = False) -> int:
    """Make the folder of a patch, or check the one that somebody has edited; 1 if a check fails.

    With another version than the base's, the patch's port is taken to that release. `fresh` drops
    what was edited. Raises Failure if there is no such patch or it doesn't apply.
    """
    patches = series()
    found = [patch for patch in patches if check.matches(patch, number)]
    if len(found) != 1:
        names = ", ".join(patch.name for patch in patches) or "none"
        raise Failure(f"name a patch by its number: PATCH=0001 (patches: {names})")
    patch = found[0]
    name = patch.stem if version == BASE_VERSION else f"{patch.stem}-{version}"
    folder = WORK / "pr" / name
    with locked("pr", name="check-series") as run:
        run.interrupted = False
        failed = False
        if edited(folder) and not fresh:
            say(f"{folder} was edited and is kept (python3 -m scripts.series pr --fresh drops it)")
        else:
            part = folder.with_name(f"{folder.name}.part")
            failed = not _make(part, patch, patches, version)
            shutil.rmtree(folder, ignore_errors=True)
            part.replace(folder)
    open_points = left_to_fill(folder)
    say(f"{folder}: {len(open_points)} points are left to the sender")
    for point in open_points:
        say(f"  {point}")
    return 1 if failed else 0


def edited(folder: Path) -> bool:
    """True if text, patches or branch differ from what was made."""
    record = folder / _MADE
    if not record.exists():
        return False
    return json.loads(record.read_text(encoding="utf-8")) != _state(folder)


def left_to_fill(folder: Path) -> list[str]:
    """The blanks in the text and in the branch's commits, each with its place."""
    tree = folder / "vllm"
    found = [
        f"{_TEXT}: {line}"
        for line in pull_text.blanks((folder / _TEXT).read_text(encoding="utf-8"))
    ]
    for commit in git("rev-list", "--reverse", "base..HEAD", cwd=tree).split():
        message = git("show", "-s", "--format=%B", commit, cwd=tree)
        found += [f"commit {commit[:12]}: {line}" for line in pull_text.blanks(message)]
    return found


def _state(folder: Path) -> dict[str, str]:
    files = [folder / _TEXT, folder / _STEPS, *sorted((folder / "patches").glob("*"))]
    state = {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.exists()
    }
    return state | {"branch": git("rev-parse", "HEAD", cwd=folder / "vllm").strip()}


@dataclass(frozen=True)
class Step:
    """A patch of the series and the file that is applied for it: itself, or its port."""

    patch: Path
    file: Path


def _make(folder: Path, patch: Path, patches: list[Path], version: str) -> bool:
    """Fill the folder; False if a check failed on the branch."""
    shutil.rmtree(folder, ignore_errors=True)
    tree = folder / "vllm"
    start = scratch.checked_out(version, tree)
    git("tag", "--force", "base", start, cwd=tree)
    steps = [Step(one, upstream.port_of(one, version)) for one in patches]
    steps = steps[: patches.index(patch) + 1]
    needed = needs(tree, start, steps)
    names = ", ".join(upstream.number(step.patch) for step in needed) or "no other patch"
    say(f"{patch.name} needs {names}")
    git("checkout", "--quiet", "-B", patch.stem.rstrip("-."), start, cwd=tree)
    for step in (*needed, steps[-1]):
        _commit(tree, step)
    commit, before = git("rev-parse", "HEAD", "HEAD^", cwd=tree).split()
    place = Place(tree, steps[-1].file, before, commit)
    check.lend_binaries(tree)
    branch = git("symbolic-ref", "--short", "HEAD", cwd=tree).strip()
    verdicts = [check.judged(place, kind, patch.name + ":") for kind in (RUFF, MYPY, TESTS)]
    git("checkout", "--quiet", branch, cwd=tree)
    _write(folder, place, needed, verdicts, version, branch)
    return all(verdict.passed for verdict in verdicts)


def needs(tree: Path, start: str, steps: list[Step]) -> list[Step]:
    """The fewest of the steps before the last that it needs, in order.

    Those that `Depends:` names (and theirs) always; others while the last doesn't apply without.
    Raises Failure if it doesn't apply on top of all. The tree's state afterwards is undefined.
    """
    *earlier, last = steps
    declared = _declared(last, earlier)
    chosen = [step for step in earlier if step in declared]
    if _fits(tree, start, [*chosen, last]):
        return chosen
    if not _fits(tree, start, steps):
        raise Failure(
            f"{last.file.name} does not apply on top of the patches before it: "
            "make apply shows where"
        )
    chosen = list(earlier)
    for step in reversed(earlier):
        without = [one for one in chosen if one != step]
        if step not in declared and _fits(tree, start, [*without, last]):
            chosen = without
    return chosen


def _declared(last: Step, earlier: list[Step]) -> list[Step]:
    found: list[Step] = []
    waiting = [last]
    while waiting:
        message = pull_text.parse(patchfile.text(waiting.pop().file).message)
        for number in message.depends():
            step = next((one for one in earlier if check.matches(one.patch, str(number))), None)
            if step is None:
                raise Failure(
                    f"{last.file.name}: Depends names {number:04}, which no earlier patch has"
                )
            if step not in found:
                found.append(step)
                waiting.append(step)
    return found


def _fits(tree: Path, start: str, steps: list[Step]) -> bool:
    checks.check_out(tree, start)
    return all(
        upstream.try_patch(tree, step.patch, step.file).result in upstream.GOOD for step in steps
    )


def _commit(tree: Path, step: Step) -> None:
    """Apply a step with the message to send, and dates that make its id the same every time."""
    if upstream.try_patch(tree, step.patch, step.file).result == upstream.UPSTREAM:
        raise Failure(f"{step.file.name} is in that release already: there is nothing to send")
    text = patchfile.text(step.file)
    date = f"{text.date} +0000"
    git(
        *("commit", "--quiet", "--amend", "--file=-", "--cleanup=verbatim", f"--date={date}"),
        cwd=tree,
        input=pull_text.commit_message(text.message),
        env={"GIT_COMMITTER_DATE": date},
    )


def _write(
    folder: Path,
    place: Place,
    needed: list[Step],
    verdicts: list[Verdict],
    version: str,
    branch: str,
) -> None:
    tree = folder / "vllm"
    message = patchfile.text(place.patch).message
    subjects = [pull_text.parse(patchfile.text(step.file).message).subject for step in needed]
    paths = [file.path for file in patchfile.files(place.patch)]
    facts = pull_text.Facts(
        commands=_commands(verdicts[-1]),
        results=_results(verdicts, paths),
        builds_on=subjects,
        release=version,
        documents=[path for path in paths if path.startswith("docs/")],
        changes_code=any(path.startswith("vllm/") for path in paths),
    )
    template = (tree / _TEMPLATE).read_text(encoding="utf-8")
    text = pull_text.pull_request(message, template, facts)
    (folder / _TEXT).write_text(text, encoding="utf-8")
    (folder / _STEPS).write_text(
        _steps(pull_text.parse(message).subject, branch, git("rev-parse", "base", cwd=tree)),
        encoding="utf-8",
    )
    (folder / "patches").mkdir()
    for name, content in export.render(tree, "base").items():
        (folder / "patches" / name).write_bytes(content)
    (folder / _MADE).write_text(json.dumps(_state(folder), indent=1) + "\n", encoding="utf-8")


def _commands(tests: Verdict) -> list[str]:
    commands = []
    if tests.files:
        commands.append(f"{_ON_CPU} pytest {' '.join(tests.files)}")
    if tests.files or tests.needs_gpu:
        commands.append(f"pytest {' '.join([*tests.files, *tests.needs_gpu])}")
    return commands


def _results(verdicts: list[Verdict], paths: list[str]) -> list[str]:
    """What the checks on this very branch gave; a blank for what needs a GPU."""
    found = []
    for verdict in verdicts:
        words = verdict.words() if verdict.passed else f"{pull_text.FILL}: FAILED"
        if verdict.kind == TESTS:
            stack = ", ".join(_installed(name) for name in ("torch", "triton"))
            words += f" on a CPU, kernels interpreted (Python {platform.python_version()}, {stack})"
        elif verdict.files:
            words += f" on {len(verdict.files)} files, as the pre-commit configuration pins it"
        found.append(f"{verdict.kind}: {words}")
    if any(path.startswith(_KERNEL_PATHS) for path in paths):
        found.append(f"on a GPU: {pull_text.FILL}: the last command's result and the device")
    return found


def _installed(name: str) -> str:
    try:
        return f"{name} {installed(name)}"
    except PackageNotFoundError:
        return f"no {name}"


def _steps(subject: str, branch: str, start: str) -> str:
    if start.strip() == BASE_COMMIT:
        take = f"git push YOUR_FORK {branch}    # from vllm/"
    else:
        take = f"git switch -c {branch} && git am --keep-non-patch path/to/patches/*.patch"
        take += "    # in a clone of vLLM: this base was made from the sdist"
    return f"""# To send this

1. Read every changed line: `git -C vllm log -p base..`
2. Look for duplicates: the numbers in {_TEXT}, and `gh pr list` with words of the title
3. Run the commands of the test plan, also on a GPU
4. Fill what is marked {pull_text.FILL} in {_TEXT}
5. Sign off, and name the tools, in each commit: `git -C vllm rebase -i base`, with `reword` and
   `git commit --amend --reset-author`
6. `make pr` again lists what is left
7. {take}
8. `gh pr create --repo vllm-project/vllm --title '{subject}' --body-file {_TEXT}`
"""
