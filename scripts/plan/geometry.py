"""What a model keeps in its cache, layer type by layer type: by name or from a config.json."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.common import Failure

FILE = Path(__file__).with_name("geometries.toml")

# config.json's names of the layer types.
KINDS = {
    "full_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "recurrent",
}


@dataclass(frozen=True)
class LayerType:
    """Layers that keep the same thing. Sizes are those of the whole model, before TP."""

    kind: str
    layers: int
    kv_heads: int = 0
    head_size: int = 0
    head_size_v: int = 0
    window: int = 0
    """Tokens that a sliding or chunked layer looks back."""
    state: int = 0
    """Bytes of a recurrent layer's state."""

    def __post_init__(self) -> None:
        if not self.head_size_v:
            object.__setattr__(self, "head_size_v", self.head_size)


@dataclass(frozen=True)
class Geometry:
    """A model's cache."""

    name: str
    title: str
    context: int
    """The model's longest request, in tokens."""
    types: tuple[LayerType, ...]

    @property
    def counts(self) -> str:
        return " + ".join(f"{layers.layers} {layers.kind}" for layers in self.types)


def named(file: Path = FILE) -> dict[str, Geometry]:
    """The geometries of the data file, by name."""
    with file.open("rb") as stream:
        table = tomllib.load(stream)
    return {
        name: Geometry(
            name, row["title"], row["context"], tuple(LayerType(**entry) for entry in row["types"])
        )
        for name, row in table.items()
    }


def find(model: str) -> list[Geometry]:
    """The geometries that a MODEL= stands for: `all`, a name, or the path of a config.json.

    Raises Failure if it is none of these.
    """
    known = named()
    if model == "all":
        return list(known.values())
    if model in known:
        return [known[model]]
    path = Path(model)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        return [from_config(path)]
    names = "\n  ".join(known)
    raise Failure(f"no model and no config.json: {model}\nknown models (or all):\n  {names}")


def from_config(path: Path) -> Geometry:
    """Read a Hugging Face config.json. Raises Failure if it doesn't tell what is needed."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise Failure(f"{path} is no JSON file: {problem}") from problem
    if not isinstance(config, dict):
        raise Failure(f"{path} is no model's config.json: it holds no JSON object")
    text = config.get("text_config") or config
    try:
        types = tuple(
            _layer_type(kind, layers, text) for kind, layers in Counter(_kinds(text)).items()
        )
        context = int(text["max_position_embeddings"])
    except KeyError as missing:
        raise Failure(
            f"{path} has no {missing.args[0]}: give a model's own config.json, "
            "or add the model to scripts/plan/geometries.toml"
        ) from missing
    title = path.resolve().parent.name
    return Geometry(title, title, context, types)


def _kinds(text: dict[str, Any]) -> list[str]:
    """The kind of every layer."""
    layers = int(text["num_hidden_layers"])
    if names := text.get("layer_types"):
        unknown = set(names) - set(KINDS)
        if unknown:
            raise Failure(
                f"layer types that the planner's table doesn't know: {', '.join(sorted(unknown))}\n"
                "add the model to scripts/plan/geometries.toml"
            )
        return [KINDS[name] for name in names]
    if interval := text.get("full_attention_interval"):
        return ["recurrent" if (i + 1) % interval else "full" for i in range(layers)]
    if interval := text.get("sliding_window_pattern"):
        return ["sliding" if (i + 1) % interval else "full" for i in range(layers)]
    return ["full"] * layers


def _layer_type(kind: str, layers: int, text: dict[str, Any]) -> LayerType:
    if kind == "recurrent":
        return LayerType(kind, layers, state=_delta_state_bytes(text))
    heads = int(text["num_attention_heads"])
    head_size = int(text.get("head_dim") or text["hidden_size"] // heads)
    window = 0
    if kind == "sliding":
        window = int(text["sliding_window"])
    elif kind == "chunked":
        window = int(text["attention_chunk_size"])
    kv_heads = int(text.get("num_key_value_heads") or heads)
    return LayerType(kind, layers, kv_heads=kv_heads, head_size=head_size, window=window)


def _delta_state_bytes(text: dict[str, Any]) -> int:
    """Gated DeltaNet's bfloat16 convolution state and float32 recurrent state, in bytes."""
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    convolution = (text["linear_conv_kernel_dim"] - 1) * (2 * keys + values) * 2
    return int(convolution + values * text["linear_key_head_dim"] * 4)
