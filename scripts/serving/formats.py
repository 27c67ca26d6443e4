"""The cache formats that the tree in vllm/ knows, read from its source: no engine is imported."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.common import VLLM, Failure

LISTED = "vllm/config/cache.py"
NAME = "CacheDType"


def known(tree: Path = VLLM) -> tuple[str, ...]:
    """Every kv_cache_dtype, as the tree's configuration lists them."""
    path = tree / LISTED
    if not path.is_file():
        raise Failure("vllm/ holds no tree: run `make apply` first")
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if (
            isinstance(statement, ast.Assign)
            and [ast.unparse(target) for target in statement.targets] == [NAME]
            and isinstance(statement.value, ast.Subscript)
        ):
            return tuple(ast.literal_eval(statement.value.slice))
    raise Failure(f"vllm/{LISTED} lists no {NAME}: the formats can't be told")


def require(cache: str, tree: Path = VLLM) -> None:
    """Raise Failure for a format that the tree doesn't know."""
    names = known(tree)
    if cache not in names:
        raise Failure(
            f"vllm/ knows no cache format {cache}: it knows {', '.join(names)}\n"
            "take one of those; a patch of the series may bring it: make apply"
        )
