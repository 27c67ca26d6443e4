"""python -m scripts.support [--write | --check]: what runs where, for README.

On which architecture, head size, cache and release a kernel of the series was run on a GPU (a file
in results/ says so), is compiled or interpreted by the series' tests, or is not taken at all, and
which features keep the release's kernel. Everything is asked of the dispatch's and the tests' own
code in vllm/.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from scripts.common import BASE_VERSION, PATCHES, Failure, main, say, series
from scripts.report import readme
from scripts.report.load import Result, load
from scripts.series import upstream
from scripts.support import measured
from scripts.support.table import Facts, Key, Release, render

NAME = "support"


def run() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.support", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help="put the table into README.md")
    group.add_argument("--check", action="store_true", help="fail if README.md has another")
    parsed = parser.parse_args()
    # Before vllm is imported: its Triton is there without a driver only if no GPU may be seen.
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    text = render(facts(load()))
    old = readme.README.read_text(encoding="utf-8")
    new = readme.put(old, {NAME: text})
    if parsed.check and new != old:
        raise Failure("README.md's support table is not what vllm/ and results/ say: make support")
    if parsed.write and new != old:
        part = readme.README.with_name(f".{readme.README.name}.part")
        part.write_text(new, encoding="utf-8")
        part.replace(readme.README)
    if not (parsed.write or parsed.check):
        print(text)
    else:
        say("README.md: the support table is what vllm/ and results/ say")


def facts(results: list[Result]) -> Facts:
    """What the patched tree and the results say."""
    from scripts.support import dispatched

    ran: dict[Key, set[str]] = {}
    cards: dict[str, set[str]] = {}
    for step in measured.steps(results):
        key = dispatched.kernel_of(step)
        if key is not None:
            ran.setdefault(key, set()).add(step.card)
            cards.setdefault(step.version, set()).add(step.card)
    return Facts(
        kernels=dispatched.kernels(),
        compiled=dispatched.compiled(),
        ran=ran,
        interpreted=dispatched.interpreted(),
        features=dispatched.features(),
        other_caches=dispatched.other_caches(),
        releases=list(_releases(cards)),
    )


def _releases(cards: dict[str, set[str]]) -> list[Release]:
    folders: list[Path] = sorted((PATCHES / "ports").glob("*"))
    found = [Release(BASE_VERSION, (), True, tuple(sorted(cards.get(BASE_VERSION, ()))))]
    for folder in folders:
        ports = [
            upstream.number(patch)
            for patch in series()
            if upstream.port_of(patch, folder.name) != patch
        ]
        same = not any(one.path.startswith("vllm/") for one in upstream.differing(folder.name))
        ran = tuple(sorted(cards.get(folder.name, ())))
        found.append(Release(folder.name, tuple(ports), same, ran))
    return found


if __name__ == "__main__":
    main(run)
