"""The git tree in vllm/ (or a scratch one): is it ours, on which base, with what on top."""

from __future__ import annotations

from pathlib import Path

from scripts.common import BASE_COMMIT, BASE_VERSION, Failure, git, run_git

# A base made from the sdist has its own commit id; this line of its message names the true one.
BASE_LINE = f"Base-commit: {BASE_COMMIT}"

_ATTRIBUTES = """\
# The series' tools: every file byte for byte, whatever core.autocrlf or .gitattributes say.
* -text
*.py diff=python
"""

# git's own unfinished operations, with the command that ends each.
_OPERATIONS = {
    "rebase-merge": "git -C vllm rebase --abort",
    "rebase-apply": "git -C vllm am --abort",
    "MERGE_HEAD": "git -C vllm merge --abort",
    "CHERRY_PICK_HEAD": "git -C vllm cherry-pick --abort",
    "REVERT_HEAD": "git -C vllm revert --abort",
    "BISECT_START": "git -C vllm bisect reset",
}


def is_repository(tree: Path) -> bool:
    """True if tree is the top of a git repository of its own, not a folder inside another."""
    if not tree.is_dir():
        return False
    done = run_git("rev-parse", "--show-toplevel", cwd=tree)
    top = done.stdout.decode(errors="surrogateescape").rstrip("\n")
    return done.returncode == 0 and Path(top).resolve() == tree.resolve()


def require_repository(tree: Path) -> None:
    """Raise Failure unless tree is a git repository of its own."""
    if is_repository(tree):
        return
    if not tree.is_dir() or not any(tree.iterdir()):
        raise Failure("vllm/ is empty: make apply brings the base")
    raise Failure(
        "vllm/ holds files but is no git repository of its own, so nothing can tell what they "
        "are\nmove it away (mv vllm vllm.saved), then make apply"
    )


def git_dir(tree: Path) -> Path:
    """The tree's own git directory, also where vllm/.git is a file."""
    return Path(git("rev-parse", "--absolute-git-dir", cwd=tree).rstrip("\n"))


def head(tree: Path) -> str:
    """The commit that is checked out."""
    return git("rev-parse", "--verify", "HEAD^{commit}", cwd=tree).strip()


def dirty(tree: Path) -> list[str]:
    """Paths with uncommitted changes, untracked ones included, ignored ones not."""
    # The user's configuration counts here: it may name more files to ignore.
    status = git(
        *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"),
        *("--ignore-submodules=none",),
        cwd=tree,
        user_config=True,
    )
    return [entry[3:] for entry in status.split("\0") if entry]


def listed(paths: list[str], limit: int = 20) -> str:
    """The paths one a line, indented, cut after limit."""
    lines = [f"  {path}" for path in paths[:limit]]
    if len(paths) > limit:
        lines.append(f"  and {len(paths) - limit} more")
    return "\n".join(lines)


def require_clean(tree: Path) -> None:
    """Raise Failure with the list if anything is uncommitted or a git operation is unfinished."""
    found = unfinished(tree)
    if found:
        raise Failure(
            f"vllm/ is in the middle of a git operation ({found}): finish it, or undo it with "
            f"{_OPERATIONS[found]}"
        )
    paths = dirty(tree)
    if paths:
        raise Failure(
            f"vllm/ has uncommitted changes:\n{listed(paths)}\n"
            "put them aside (git -C vllm stash -u; bring back: git -C vllm stash pop), or commit "
            "them and make export; make ab-status tells whether an old kernel is in"
        )


def unfinished(tree: Path) -> str | None:
    """The name of git's own unfinished operation in the tree, if there is one."""
    directory = git_dir(tree)
    return next((name for name in _OPERATIONS if (directory / name).exists()), None)


def base_of(tree: Path) -> str:
    """The base commit below HEAD: BASE_COMMIT, or the local one made from the sdist.

    Raises Failure if HEAD descends from neither.
    """
    if run_git("merge-base", "--is-ancestor", BASE_COMMIT, "HEAD", cwd=tree).returncode == 0:
        return BASE_COMMIT
    for root in git("rev-list", "--max-parents=0", "HEAD", cwd=tree).split():
        message = git("show", "-s", "--format=%B", root, cwd=tree)
        if BASE_LINE in message.splitlines():
            return root
    raise Failure(
        f"vllm/ is at {head(tree)[:12]}, which does not descend from v{BASE_VERSION} "
        f"({BASE_COMMIT[:12]}): check out the branch that holds the series "
        "(git -C vllm branch -a), or move vllm/ away and make apply"
    )


def stack(tree: Path, base: str) -> list[str]:
    """The commits above the base, oldest first. Raises Failure if they are not one line."""
    merges = git("rev-list", "--min-parents=2", f"{base}..HEAD", cwd=tree).split()
    if merges:
        raise Failure(
            f"the stack in vllm/ holds a merge ({merges[0][:12]}): a series is one line of "
            "commits; git -C vllm rebase makes it one"
        )
    return git("rev-list", "--reverse", f"{base}..HEAD", cwd=tree).split()


def subject(tree: Path, commit: str) -> str:
    """The first line of a commit's message."""
    return git("show", "-s", "--format=%s", commit, cwd=tree).strip()


def branch(tree: Path) -> str | None:
    """The branch that is checked out. A detached HEAD gets `series`, unless that is taken: None.

    A branch keeps the stack when somebody updates the submodule, which detaches HEAD.
    """
    name = git("symbolic-ref", "--quiet", "--short", "HEAD", cwd=tree, check=False).strip()
    if name:
        return name
    taken = run_git("rev-parse", "--verify", "--quiet", "refs/heads/series", cwd=tree)
    if taken.returncode == 0:
        return None
    git("switch", "--quiet", "--create", "series", cwd=tree)
    return "series"


def settle(tree: Path) -> None:
    """Make the tree's files the bytes that git holds, for the user's own git too; done once.

    Files that a clone under core.autocrlf has converted are written afresh, unless they differ
    from git's by more than their line ends.
    """
    attributes = tree / git("rev-parse", "--git-path", "info/attributes", cwd=tree).rstrip("\n")
    present = attributes.read_text() if attributes.exists() else ""
    if _ATTRIBUTES in present:
        return
    converted = _converted(tree)
    for path in converted:
        (tree / path).unlink()
    git("config", "core.autocrlf", "false", cwd=tree)
    git(
        *("checkout-index", "--force", "-z", "--stdin", "--index"),
        cwd=tree,
        input="".join(f"{path}\0" for path in converted),
    )
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text(present + _ATTRIBUTES)


def _converted(tree: Path) -> list[str]:
    """Files that are git's but for CRLF line ends."""
    paths = []
    for entry in git("ls-files", "--eol", "-z", cwd=tree).split("\0"):
        ends, _, path = entry.partition("\t")
        if ends.split()[:2] == ["i/lf", "w/crlf"]:
            content = (tree / path).read_bytes().replace(b"\r\n", b"\n")
            if content == run_git("cat-file", "blob", f":{path}", cwd=tree).stdout:
                paths.append(path)
    return paths
