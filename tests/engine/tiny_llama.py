"""A tiny Llama with random weights: two layers, two query heads for each KV head."""

import json
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE, INNER = 96, 64, 2, 4, 2, 32, 96
EPSILON, ROPE_THETA, MAX_LENGTH = 1e-6, 10000.0, 96

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_SIZE,
    "max_position_embeddings": MAX_LENGTH,
    "rms_norm_eps": EPSILON,
    "rope_theta": ROPE_THETA,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Named float32 weights, large enough that attention is neither flat nor on one token."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    named = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN, HIDDEN**0.5),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN, 2.0),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        named |= {
            f"{prefix}.self_attn.q_proj.weight": matrix(HEADS * HEAD_SIZE, HIDDEN, 1.5),
            f"{prefix}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_SIZE, HIDDEN, 1.5),
            f"{prefix}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_SIZE, HIDDEN, 2.0),
            f"{prefix}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_SIZE, 2.0),
            f"{prefix}.mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": matrix(HIDDEN, INNER),
            f"{prefix}.input_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{prefix}.post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
        }
    return named


def write(folder: Path) -> Path:
    """Write the model as a folder that vllm.LLM takes."""
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), folder / "model.safetensors")
    return folder
