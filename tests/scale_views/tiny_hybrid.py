"""A tiny LFM2 with random weights: short convolutions (a recurrent state) and full attention."""

import json
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, INNER = 96, 64, 2, 1, 32, 96
# The CPU's packed convolution knows this width alone; models use 3.
WIDTH = 4
# A state is stored before the first attention layer makes its views, and one between two of them.
LAYERS = ["conv", "conv", "full_attention", "conv", "full_attention"]
MAX_LENGTH = 128

CONFIG: dict[str, Any] = {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "block_dim": HIDDEN,
    "block_ff_dim": INNER,
    "block_auto_adjust_ff_dim": False,
    "block_multiple_of": 32,
    "block_ffn_dim_multiplier": 1.0,
    "conv_dim": HIDDEN,
    "conv_dim_out": HIDDEN,
    "conv_L_cache": WIDTH,
    "conv_bias": False,
    "num_hidden_layers": len(LAYERS),
    "layer_types": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": MAX_LENGTH,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


def weights() -> dict[str, np.ndarray]:
    """Named float32 weights, large enough that every layer moves the result."""
    random = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 1.5 / shape[-1] ** 0.5).astype(np.float32)

    named = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
        "model.embedding_norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN),
    }
    for layer, kind in enumerate(LAYERS):
        prefix = f"model.layers.{layer}"
        if kind == "conv":
            named |= {
                f"{prefix}.conv.conv.weight": matrix(HIDDEN, 1, WIDTH),
                f"{prefix}.conv.in_proj.weight": matrix(3 * HIDDEN, HIDDEN),
                f"{prefix}.conv.out_proj.weight": matrix(HIDDEN, HIDDEN),
            }
        else:
            named |= {
                f"{prefix}.self_attn.q_proj.weight": matrix(HEADS * HEAD_SIZE, HIDDEN),
                f"{prefix}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_SIZE, HIDDEN),
                f"{prefix}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_SIZE, HIDDEN),
                f"{prefix}.self_attn.out_proj.weight": matrix(HIDDEN, HEADS * HEAD_SIZE),
                f"{prefix}.self_attn.q_layernorm.weight": np.ones(HEAD_SIZE, np.float32),
                f"{prefix}.self_attn.k_layernorm.weight": np.ones(HEAD_SIZE, np.float32),
            }
        named |= {
            f"{prefix}.feed_forward.w1.weight": matrix(INNER, HIDDEN),
            f"{prefix}.feed_forward.w2.weight": matrix(HIDDEN, INNER),
            f"{prefix}.feed_forward.w3.weight": matrix(INNER, HIDDEN),
            f"{prefix}.operator_norm.weight": np.ones(HIDDEN, np.float32),
            f"{prefix}.ffn_norm.weight": np.ones(HIDDEN, np.float32),
        }
    return named


def write(folder: Path) -> Path:
    """Write the model as a folder that vllm.LLM takes."""
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), folder / "model.safetensors")
    return folder
