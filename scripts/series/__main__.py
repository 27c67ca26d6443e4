"""`python -m scripts.series COMMAND`: see --help."""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.common import BASE_VERSION, VLLM, main
from scripts.series import apply, export, lint, stats, status, stgit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts.series", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("apply", help="bring the base, then apply patches/series")
    command.add_argument(
        "--if-needed",
        action="store_true",
        help="accept uncommitted edits when the whole series is applied already",
    )
    command = commands.add_parser("unapply", help="take the series off: vllm/ is the plain base")
    command.add_argument(
        "--save",
        action="store_true",
        help="allow commits that patches/ does not have: a branch in vllm/ keeps the stack",
    )
    command = commands.add_parser("export", help="write the stack in vllm/ to patches/")
    command.add_argument(
        "--drop", action="store_true", help="delete the patches that the stack does not have"
    )
    commands.add_parser("stg", help="turn the stack into a StGit stack, or back")
    commands.add_parser("status", help="what is applied, what differs, what is dirty")
    commands.add_parser("stats", help="lines in new files and in shared files, per patch")
    commands.add_parser("lint", help="check patches/ and that export(apply(series)) equals it")
    command = commands.add_parser(
        "check-upstream", help="apply the series to another release in a scratch tree"
    )
    command.add_argument("version", help="a release, such as 0.33.0")
    command.add_argument("--scratch", type=Path, help="where to put the scratch tree")
    command = commands.add_parser(
        "check", help="each patch at its place: it applies, ruff, mypy and its tests pass"
    )
    command.add_argument("patch", nargs="?", help="only the patch of that number")
    command.add_argument("--tests", choices=["all", "below", "none"], default="all")
    command.add_argument("--version", default=BASE_VERSION, help="a release: check its ports")
    command = commands.add_parser("pr", help="a folder from which a patch can be sent upstream")
    command.add_argument("patch", help="its number, such as 0003")
    command.add_argument("--version", default=BASE_VERSION, help="a release: take its port")
    command.add_argument("--fresh", action="store_true", help="drop what was edited in the folder")
    command = commands.add_parser(
        "range-diff", help="what changed between an older version of patches/ and this one"
    )
    command.add_argument("old", help="a tag or commit of this repository")
    return parser


def _run() -> int:
    arguments = _parser().parse_args()
    match arguments.command:
        case "apply":
            apply.apply(if_needed=arguments.if_needed)
        case "unapply":
            apply.unapply(save=arguments.save)
        case "export":
            export.export(drop=arguments.drop)
        case "stg":
            stgit.toggle()
        case "status":
            print(status.report(VLLM))
        case "stats":
            print(stats.table())
        case "lint":
            return lint.report()
        case "check-upstream":
            # Imported here, as those below, so that the everyday commands do not wait for it.
            from scripts.series.upstream import check_upstream

            return check_upstream(arguments.version, arguments.scratch)
        case "check":
            from scripts.series.check import check_series

            return check_series(arguments.patch, arguments.tests, arguments.version)
        case "pr":
            from scripts.series.pr import make_pr

            return make_pr(arguments.patch, arguments.version, fresh=arguments.fresh)
        case "range-diff":
            from scripts.series.range_diff import range_diff

            range_diff(arguments.old)
    return 0


if __name__ == "__main__":
    main(_run)
