"""Geometries, batches and cache formats by name. Imports no torch."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scripts.common import VLLM, Failure

FILE = Path(__file__).with_name("shapes.toml")
BENCHMARKS = VLLM / "benchmarks" / "attention_benchmarks"
BLOCK_SIZE = 16
MAX_FUSED_TOKENS = 16  # query tokens of a request that still count as verification


@dataclass(frozen=True)
class Geometry:
    """The heads of one attention layer."""

    name: str
    title: str
    num_heads: int
    num_kv_heads: int
    head_size: int


@dataclass(frozen=True)
class Format:
    """A cache format and the code that serves it; see shapes.toml."""

    name: str
    title: str
    backend: str
    cache: str
    bound: float
    fused: bool = True
    same_as: str | None = None
    agreement: float = 0.0
    graphs: bool = True


@dataclass(frozen=True)
class Batch:
    """A step's requests: query tokens, and tokens of context with them."""

    spec: str
    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]

    @property
    def kind(self) -> str:
        """decode, verify, prefill, or mixed."""
        kinds = {
            "decode" if query == 1 else "verify" if query <= MAX_FUSED_TOKENS else "prefill"
            for query in self.query_lens
        }
        return kinds.pop() if len(kinds) == 1 else "mixed"


@cache
def _data() -> dict[str, Any]:
    with FILE.open("rb") as stream:
        return tomllib.load(stream)


def geometry(name: str) -> Geometry:
    """A geometry by name. Raises Failure if there is none."""
    known = _data()["geometry"]
    if name not in known:
        raise Failure(f"no geometry {name}: known are {', '.join(known)} ({FILE.name})")
    return Geometry(name, **known[name])


def formats() -> dict[str, Format]:
    """Every cache format by name."""
    return {name: Format(name, **entry) for name, entry in _data()["format"].items()}


def format_named(name: str) -> Format:
    """A format by name. Raises Failure if there is none."""
    known = formats()
    if name not in known:
        raise Failure(f"no cache format {name}: known are {', '.join(known)} ({FILE.name})")
    return known[name]


def batches(kind: str) -> list[str]:
    """The specs of decode, verify, prefill, store or smoke."""
    return list(_data()["batches"][kind])


def batch(spec: str) -> Batch:
    """Read a batch by vLLM's own grammar. Raises Failure with it if that can't."""
    if not (BENCHMARKS / "batch_spec.py").exists():
        raise Failure("vllm/ is not there yet: make apply")
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    import batch_spec  # type: ignore[import-not-found]

    try:
        requests = batch_spec.parse_batch_spec(spec)
    except ValueError as problem:
        raise Failure(
            f"{problem}\nthe grammar, segments joined by _:{_grammar(batch_spec)}"
        ) from None
    short = [request for request in requests if not 0 < request.q_len <= request.kv_len]
    if short:
        raise Failure(
            f"{spec}: {short[0].q_len} query tokens over {short[0].kv_len} tokens in all: the "
            "second counts the first too"
        )
    return Batch(
        spec,
        tuple(request.q_len for request in requests),
        tuple(request.kv_len for request in requests),
    )


def _grammar(module: Any) -> str:
    return module.__doc__.partition("Common patterns:")[2].rstrip()
