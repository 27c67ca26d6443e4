"""Models without weights, for speed alone: the engine makes the weights up (load_format "dummy").

`dummy-NAME` is a dense model of the full-attention layers of NAME in scripts/plan/geometries.toml,
where that file says how many query heads they have. `dummy-24q4kv-d256` names heads and head size
themselves, in a model of LAYERS layers: those of the kernels' benchmarks.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from scripts.plan import geometry

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
PREFIX = "dummy-"
LAYERS = 16
CONTEXT = 262144  # tokens of the longest request
_HEADS = re.compile(r"(\d+)q(\d+)kv-d(\d+)")


def config(name: str) -> dict[str, Any] | None:
    """The config.json of a model by name; None if no dummy is named so."""
    if not name.startswith(PREFIX):
        return None
    shape = name.removeprefix(PREFIX)
    if heads := _HEADS.fullmatch(shape):
        return _dense(*map(int, heads.groups()))
    return of_geometries().get(shape)


def known() -> list[str]:
    """Every name of the data file that fits, and examples of the other kind."""
    names = [f"{PREFIX}{name}" for name in of_geometries()]
    return [*names, "dummy-24q4kv-d256", "dummy-48q8kv-d128 (any such heads)"]


def of_geometries(file: Path = geometry.FILE) -> dict[str, dict[str, Any]]:
    """Of each model whose query heads are known, and whose full layers are of one kind."""
    with file.open("rb") as stream:
        heads = {name: row.get("query_heads") for name, row in tomllib.load(stream).items()}
    found = {}
    for name, model in geometry.named(file).items():
        full = [layers for layers in model.types if layers.kind == "full"]
        if heads[name] and len(full) == 1 and full[0].head_size == full[0].head_size_v:
            (one,) = full
            sizes = one.kv_heads, one.head_size, one.layers, model.context
            found[name] = _dense(heads[name], *sizes)
    return found


def _dense(
    heads: int, kv_heads: int, head_size: int, layers: int = LAYERS, context: int = CONTEXT
) -> dict[str, Any]:
    return LLAMA | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": context,
        "rope_theta": 1e6,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
    }
