"""A stand-in for the model hub's cache: configurations that the release's tests name, no weights.

Most tests of the planner build a ModelConfig, whose default is a model's name.  They read a few
sizes of it; with these files in the cache they run without a network.
"""

import json
from pathlib import Path

REVISION = "0" * 40
CONFIGS = {
    "Qwen/Qwen3-0.6B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    },
    "Qwen/Qwen1.5-7B": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    },
}


def write(home: Path) -> Path:
    """Write the cache below `home`, the value for HF_HOME."""
    for name, config in CONFIGS.items():
        repository = home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repository / "snapshots" / REVISION
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(config))
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(REVISION)
    return home
