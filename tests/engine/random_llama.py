"""A Llama with random weights, as tiny as interpreted kernels want it or of another shape."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; max_length: tokens of a request."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    max_length: int


TINY = Shape(96, 64, 2, 4, 2, 32, 96, 96)
VOCABULARY, LAYERS, MAX_LENGTH = TINY.vocabulary, TINY.layers, TINY.max_length
HEADS, KV_HEADS, HEAD_SIZE = TINY.heads, TINY.kv_heads, TINY.head_size
EPSILON, ROPE_THETA = 1e-6, 10000.0


def config(shape: Shape = TINY) -> dict[str, Any]:
    """The model's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "max_position_embeddings": shape.max_length,
        "rms_norm_eps": EPSILON,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }


def weights(shape: Shape = TINY, seed: int = 0) -> dict[str, np.ndarray]:
    """Named float32 weights, large enough that attention is neither flat nor on one token."""
    random = np.random.default_rng(seed)
    hidden, inner = shape.hidden, shape.inner
    rows, kv_rows = shape.heads * shape.head_size, shape.kv_heads * shape.head_size

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    named = {
        "model.embed_tokens.weight": matrix(shape.vocabulary, hidden, hidden**0.5),
        "lm_head.weight": matrix(shape.vocabulary, hidden, 2.0),
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        named |= {
            f"{prefix}.self_attn.q_proj.weight": matrix(rows, hidden, 1.5),
            f"{prefix}.self_attn.k_proj.weight": matrix(kv_rows, hidden, 1.5),
            f"{prefix}.self_attn.v_proj.weight": matrix(kv_rows, hidden, 2.0),
            f"{prefix}.self_attn.o_proj.weight": matrix(hidden, rows, 2.0),
            f"{prefix}.mlp.gate_proj.weight": matrix(inner, hidden),
            f"{prefix}.mlp.up_proj.weight": matrix(inner, hidden),
            f"{prefix}.mlp.down_proj.weight": matrix(hidden, inner),
            f"{prefix}.input_layernorm.weight": np.ones(hidden, np.float32),
            f"{prefix}.post_attention_layernorm.weight": np.ones(hidden, np.float32),
        }
    return named


def write(folder: Path, shape: Shape = TINY) -> Path:
    """Write the model as a folder that vllm.LLM takes."""
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(config(shape)))
    save_file(weights(shape), folder / "model.safetensors")
    return folder
