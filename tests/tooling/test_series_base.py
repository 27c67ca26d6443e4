"""Where the base comes from, and what may not be mistaken for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from series_lab import BASE_FILES, COMMIT, VERSION, Lab

SDIST = f".cache/vllm-{VERSION}.tar.gz"


def test_base_is_the_release_and_names_its_true_commit(lab: Lab) -> None:
    output = lab.run("apply")
    assert "no answer" in output, "the submodule's remote does not exist here"
    lab.run("unapply")
    assert lab.contents() == {name: text.encode() for name, text in BASE_FILES.items()}
    assert lab.git("config", "series.baseCommit").strip() == COMMIT
    assert f"Base-commit: {COMMIT}" in lab.git("show", "-s", "--format=%B", "base")
    assert lab.git("ls-files", "vllm/_version.py"), "the release's ignored files belong to it"


@pytest.mark.parametrize("damage", ["short", "other", "empty"])
def test_corrupt_cached_sdist_is_removed(lab: Lab, damage: str) -> None:
    cached = lab.root / SDIST
    good = cached.read_bytes()
    bad = {"short": good[: len(good) // 2], "other": b"no archive at all", "empty": b""}
    cached.write_bytes(bad[damage])
    output = lab.run("apply", code=1)
    assert "corrupt" in output and "run the same command again" in output
    assert not cached.exists() and not lab.vllm.exists()
    assert not list(lab.root.glob(".work/*")), "nothing is left behind"
    cached.write_bytes(good)
    lab.run("apply")
    assert lab.depth() == 6


def test_local_file_is_checked_and_kept(lab: Lab) -> None:
    local = lab.root.parent / "copy.tar.gz"
    shutil.move(lab.root / SDIST, local)
    lab.run("apply", QUANT_KV_SDIST=str(local))
    assert lab.depth() == 6
    shutil.rmtree(lab.vllm)
    local.write_bytes(b"wrong")
    assert "sha256" in lab.run("apply", code=1, QUANT_KV_SDIST=str(local))
    assert local.exists() and not lab.vllm.exists()
    local.unlink()
    assert "no such file" in lab.run("apply", code=1, QUANT_KV_SDIST=str(local))


def _fake_downloader(lab: Lab, script: str) -> None:
    """Put a program in the place of the download tool; $7 is the folder it downloads to."""
    python = lab.root / ".cache/tools/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] && exit 0\nfolder="$5"\n{script}\n')
    python.chmod(0o755)


def test_download_is_kept_only_when_whole(lab: Lab) -> None:
    good = lab.root.parent / "good.tar.gz"
    shutil.move(lab.root / SDIST, good)
    _fake_downloader(lab, f'head -c 100 "{good}" > "$folder/vllm-{VERSION}.tar.gz"')
    env = {"PIP_INDEX_URL": ""}
    output = lab.run("apply", code=1, **env)
    assert "not the release" in output and "nothing was kept" in output
    assert not (lab.root / SDIST).exists() and not list(lab.root.glob(".cache/*.part"))
    shutil.rmtree(lab.root / ".cache/tools")
    _fake_downloader(lab, "echo no network today; exit 3")
    output = lab.run("apply", code=1, **env)
    assert "no network today" in output and "QUANT_KV_SDIST" in output
    shutil.rmtree(lab.root / ".cache/tools")
    _fake_downloader(lab, f'cp "{good}" "$folder/vllm-{VERSION}.tar.gz"')
    lab.run("apply", **env)
    assert lab.depth() == 6
    assert (lab.root / SDIST).read_bytes() == good.read_bytes()


def _remote(lab: Lab) -> str:
    """Make the submodule's remote a real repository of the base's files; returns its commit."""
    upstream = lab.root.parent / "upstream"
    for name, text in BASE_FILES.items():
        (upstream / name).parent.mkdir(parents=True, exist_ok=True)
        (upstream / name).write_bytes(text.encode())
    for command in (
        ["init", "--quiet"],
        ["add", "--all", "--force"],
        ["commit", "--quiet", "--message=upstream"],
        ["commit", "--quiet", "--allow-empty", "--message=a later one"],
        ["config", "uploadpack.allowAnySHA1InWant", "true"],
    ):
        lab.git(*command, cwd=upstream)
    (lab.root / ".gitmodules").write_text(
        f'[submodule "vllm"]\n\tpath = vllm\n\turl = file://{upstream}\n'
    )
    commit = lab.git("rev-parse", "HEAD~1", cwd=upstream).strip()
    lab.env["QUANT_KV_BASE_COMMIT"] = commit
    return commit


def test_remote_that_answers_is_fetched_shallow(lab: Lab) -> None:
    commit = _remote(lab)
    (lab.root / SDIST).unlink()
    lab.run("apply")
    assert lab.git("rev-parse", "base").strip() == commit
    assert lab.git("rev-parse", "--is-shallow-repository").strip() == "true"
    assert lab.depth() == 6 and lab.changes() == ""
    lab.run("export")
    assert "is sound" in lab.run("lint")
    assert f"base-commit: {commit}\n".encode() in lab.patch(1).read_bytes()
    lab.run("unapply")
    assert lab.head() == commit


def test_remote_without_the_commit_gives_way_to_the_sdist(lab: Lab) -> None:
    _remote(lab)
    lab.env["QUANT_KV_BASE_COMMIT"] = COMMIT
    assert "the fetch failed" in lab.run("apply")
    assert lab.depth() == 6


def test_submodule_cloned_under_autocrlf_is_settled(lab: Lab) -> None:
    commit = _remote(lab)
    upstream = (lab.root / ".gitmodules").read_text().split("url = ")[1].strip()
    lab.git("-c", "core.autocrlf=true", "clone", "--quiet", upstream, str(lab.vllm), cwd=lab.root)
    lab.git("config", "core.autocrlf", "true")
    lab.git("checkout", "--quiet", commit)
    assert b"\r\n" in (lab.vllm / "vllm/a.py").read_bytes(), "the clone converts"
    lab.run("apply")
    assert lab.depth() == 6 and lab.changes() == ""
    assert lab.git("symbolic-ref", "HEAD").strip() == "refs/heads/series", "a branch keeps it"
    assert b"\r\n" not in (lab.vllm / "vllm/a.py").read_bytes()


@pytest.mark.parametrize("place", ["a folder with spaces", "autocrlf", "hooks and identity"])
def test_surroundings_do_not_matter(lab: Lab, applied: Lab, tmp_path: Path, place: str) -> None:
    if place == "a folder with spaces":
        moved = tmp_path / "a b" / "c  d"
        moved.parent.mkdir()
        lab.root.rename(moved)
        lab.root = moved
    config = tmp_path / "config"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    if place == "autocrlf":
        config.write_text("[core]\n\tautocrlf = true\n\tsafecrlf = true\n")
    elif place == "hooks and identity":
        for name in ("pre-commit", "pre-applypatch", "commit-msg", "post-checkout"):
            (hooks / name).write_text("#!/bin/sh\nexit 1\n")
            (hooks / name).chmod(0o755)
        config.write_text(
            f"[core]\n\thooksPath = {hooks}\n[user]\n\tuseConfigOnly = true\n"
            "[commit]\n\tgpgSign = true\n[am]\n\tthreeWay = true\n[apply]\n\twhitespace = fix\n"
        )
    env = {"GIT_CONFIG_GLOBAL": str(config)} if config.exists() else {}
    env |= {"GIT_DIR": str(tmp_path / "nowhere"), "HOME": str(tmp_path)}
    lab.run("apply", **env)
    assert lab.head() == applied.head()
    assert lab.contents() == applied.contents()
    lab.run("export", **env)
    assert lab.exported() == applied.exported()
    lab.run("unapply", **env)
    lab.run("apply", **env)
    assert lab.contents() == applied.contents()


def test_works_in_a_shallow_clone_under_autocrlf(lab: Lab, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[2] / ".gitattributes", lab.root)
    lab.git("init", "--quiet", cwd=lab.root)
    (lab.root / ".gitignore").write_text("/.cache/\n/.work/\n")
    for message in ("one", "two"):
        lab.git("add", "--all", cwd=lab.root)
        lab.git("commit", "--quiet", "--allow-empty", f"--message={message}", cwd=lab.root)
    clone = Lab(tmp_path / "clone", dict(lab.env))
    lab.git(
        *("-c", "core.autocrlf=true", "clone", "--quiet", "--depth=1"),
        *(f"file://{lab.root}", str(clone.root)),
        cwd=tmp_path,
    )
    (clone.root / ".cache").mkdir()
    shutil.copy(lab.root / SDIST, clone.root / ".cache")
    assert clone.exported() == lab.exported(), "patches keep their bytes"
    clone.run("apply")
    assert clone.depth() == 6 and clone.changes() == ""


def test_folder_inside_another_repository_is_not_mistaken(lab: Lab) -> None:
    lab.git("init", "--quiet", cwd=lab.root)
    (lab.vllm / "vllm").mkdir(parents=True)
    (lab.vllm / "vllm/a.py").write_text("somebody's\n")
    for command in ("apply", "unapply", "export", "lint"):
        assert "no git repository of its own" in lab.run(command, code=1)
    assert "no git repository of its own" in lab.run("status")
    assert (lab.vllm / "vllm/a.py").read_text() == "somebody's\n"
    assert subprocess.run(["git", "-C", lab.root, "log"], capture_output=True).returncode != 0


def test_other_history_is_refused(lab: Lab) -> None:
    lab.vllm.mkdir()
    (lab.vllm / "file").write_text("1\n")
    lab.git("init", "--quiet")
    lab.commit("Other history")
    assert "does not descend from" in lab.run("apply", code=1)
    assert lab.git("rev-list", "--count", "HEAD").strip() == "1"


def test_empty_folder_of_a_submodule_is_filled(lab: Lab) -> None:
    lab.vllm.mkdir()
    lab.run("apply")
    assert lab.depth() == 6
