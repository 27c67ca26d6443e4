"""python -m scripts.report [--check]: renders results/REPORT.md, its plots and README's figures.

Fails, with the remedy, if a figure of the README has no JSON behind it, or a result was measured
on a series that is no ancestor of HEAD.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.common import Failure, main, say
from scripts.report import readme
from scripts.report.load import RESULTS, load
from scripts.report.page import PLOTS, Page

REPORT = "REPORT.md"


def run() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.report", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if README's figures are not these"
    )
    parsed = parser.parse_args()
    results = load()
    texts = readme.render(results)
    old = readme.README.read_text(encoding="utf-8")
    new = readme.put(old, texts)
    for text in texts.values():
        readme.require_links(text)
    if parsed.check:
        if new != old:
            raise Failure("README.md's figures are not those of results/: make report")
        say(f"README.md: its figures are those of {len(results)} results")
        return
    page = Page(results)
    write(RESULTS / REPORT, page.render())
    for path in set((RESULTS / PLOTS).glob("*.svg")) - page.plots:
        path.unlink()
    write(readme.README, new)
    for line in page.missing:
        say(f"missing: {line}")
    say(f"written: results/{REPORT}, {len(page.plots)} plots, README.md's figures")


def write(path: Path, text: str) -> None:
    """Write a text in one step, if it differs."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    main(run)
