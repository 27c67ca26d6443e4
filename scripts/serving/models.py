"""Which model a script serves, and how text becomes its tokens.

The default is SmolLM2-135M-Instruct from its package. A smoke run takes a tiny Llama with random
weights; those of `dummy` have weights that the engine makes up, and need no download.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import model as smollm2
from scripts.common import WORK, Failure
from scripts.harness import inputs
from scripts.serving import dummy

FOLDER = WORK / "models"
# Bytes are its tokens, so it needs no tokenizer.
TINY = dummy.LLAMA | {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "torch_dtype": "float32",
}


@dataclass(frozen=True)
class Model:
    """A model as the engine takes it.

    path: folder or hub id; name: short, for file names; dtype: of weights and plain cache;
    weights: "auto", or "dummy" where the engine makes them up; vocabulary: its number of tokens;
    limit: the longest request, in tokens.
    """

    path: str
    name: str
    dtype: str
    weights: str
    vocabulary: int
    limit: int

    @property
    def made_up(self) -> bool:
        """Whether its answers mean nothing."""
        return self.weights == "dummy" or self.name == "tiny"


def find(named: str | None, smoke: bool) -> Model:
    """The model of --model (None: the default). Raises Failure for an unknown one."""
    made_up = dummy.config(named) if named else None
    # Made-up layers in tiny shapes too: interpreted, those of a dummy would take hours.
    if smoke and (named is None or made_up):
        return _tiny()
    if named and made_up:
        folder = FOLDER / named
        _write_config(folder, made_up)
        return _described(str(folder), named, "dummy", made_up)
    path = str(smollm2.ensure()) if named is None else named
    config = Path(path) / "config.json"
    name = smollm2.NAME if named is None else Path(path).name
    if config.is_file():
        return _described(path, name, "auto", json.loads(config.read_text(encoding="utf-8")))
    from transformers import AutoConfig

    try:
        return _described(path, name, "auto", AutoConfig.from_pretrained(path).to_dict())
    except OSError as problem:
        known = ", ".join(dummy.known())
        raise Failure(
            f"no model {path}: give a folder, a hub id that is reachable, or one of {known}"
        ) from problem


def files(named: str | None, model: Model) -> list[inputs.Input]:
    """What a run reads of the model that `find` gave for --model.

    The default's weights are pinned; whatever a user names is recorded: all files of a folder, of a
    hub id the commit, by the config.json that lies in the hub's cache.
    """
    folder = Path(model.path)
    if named is None and model.name == smollm2.NAME:
        return [smollm2.source(folder)]
    if folder.is_dir():
        return [inputs.Input(model.name, folder)]
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model.path, "config.json")
    if not isinstance(config, str):
        return []
    return [inputs.Input(f"{model.path} at {Path(config).parent.name}", Path(config))]


def _described(path: str, name: str, weights: str, config: dict[str, Any]) -> Model:
    text = config.get("text_config") or config
    dtype = text.get("torch_dtype") or text.get("dtype") or "bfloat16"
    limit = int(text["max_position_embeddings"])
    return Model(path, name, str(dtype), weights, int(text["vocab_size"]), limit)


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file, text = folder / "config.json", json.dumps(config, indent=1) + "\n"
    # Another run may read it at this moment.
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def _tiny() -> Model:
    """A Llama of two layers, its random weights large enough that attention isn't flat."""
    folder = FOLDER / "tiny"
    if not (folder / "model.safetensors").exists():
        import numpy as np
        from safetensors.numpy import save_file

        _write_config(folder, TINY)
        part = folder / f".{os.getpid()}.part"
        random = np.random.default_rng(0)
        save_file(
            {
                name: (random.standard_normal(shape) * gain / shape[-1] ** 0.5).astype(np.float32)
                if len(shape) == 2
                else np.ones(shape, np.float32)
                for name, shape, gain in _tiny_shapes()
            },
            part,
        )
        # In one step: two runs may make it at once.
        os.replace(part, folder / "model.safetensors")
    return _described(str(folder), "tiny", "auto", TINY)


def _tiny_shapes() -> list[tuple[str, tuple[int, ...], float]]:
    """Name, shape and gain of each weight."""
    hidden, inner, size = TINY["hidden_size"], TINY["intermediate_size"], TINY["head_dim"]
    query, kv = TINY["num_attention_heads"] * size, TINY["num_key_value_heads"] * size
    shapes: list[tuple[str, tuple[int, ...], float]] = [
        ("model.embed_tokens.weight", (TINY["vocab_size"], hidden), hidden**0.5),
        ("lm_head.weight", (TINY["vocab_size"], hidden), 2.0),
        ("model.norm.weight", (hidden,), 1.0),
    ]
    for layer in range(TINY["num_hidden_layers"]):
        of = f"model.layers.{layer}"
        shapes += [
            (f"{of}.self_attn.q_proj.weight", (query, hidden), 1.5),
            (f"{of}.self_attn.k_proj.weight", (kv, hidden), 1.5),
            (f"{of}.self_attn.v_proj.weight", (kv, hidden), 2.0),
            (f"{of}.self_attn.o_proj.weight", (hidden, query), 2.0),
            (f"{of}.mlp.gate_proj.weight", (inner, hidden), 1.0),
            (f"{of}.mlp.up_proj.weight", (inner, hidden), 1.0),
            (f"{of}.mlp.down_proj.weight", (hidden, inner), 1.0),
            (f"{of}.input_layernorm.weight", (hidden,), 1.0),
            (f"{of}.post_attention_layernorm.weight", (hidden,), 1.0),
        ]
    return shapes


class Text:
    """Text to tokens and back; bytes are the tokens of a model without a tokenizer."""

    def __init__(self, model: Model) -> None:
        self._tokenizer: Any = None
        if not model.made_up:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(model.path)

    def encode(self, text: str) -> list[int]:
        """Tokens without special ones."""
        if self._tokenizer is None:
            return list(text.encode())
        return self._tokenizer(text, add_special_tokens=False).input_ids

    def decode(self, tokens: list[int]) -> str:
        if self._tokenizer is None:
            return bytes(token % 256 for token in tokens).decode(errors="replace")
        return self._tokenizer.decode(tokens, skip_special_tokens=True)

    @property
    def ends(self) -> list[int]:
        """The tokens that end an answer."""
        if self._tokenizer is None or self._tokenizer.eos_token_id is None:
            return []
        return [self._tokenizer.eos_token_id]
