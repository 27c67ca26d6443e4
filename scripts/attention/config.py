"""The engine's configuration for a step: a dense model of a geometry, without any weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.attention.served import Device
from scripts.attention.shapes import BLOCK_SIZE, Batch, Format, Geometry
from scripts.common import WORK

SERVED_REQUESTS = 64  # that an engine on a GPU has room for, at least


def make(geometry: Geometry, batch: Batch, form: Format, device: Device) -> Any:
    """The engine's configuration for a model of this geometry, without any weights."""
    from vllm.engine.arg_utils import EngineArgs

    queries = max(batch.query_lens)
    verify = batch.kind == "verify"
    # As the engine runs them: decode and verify in full graphs, planned for more requests.
    most = max(len(batch.seq_lens), SERVED_REQUESTS if device.on_gpu else 1)
    graphs = {"cudagraph_mode": "FULL_DECODE_ONLY"} if device.on_gpu else {}
    speculative = {"method": "ngram", "num_speculative_tokens": queries - 1} if verify else None
    arguments = EngineArgs(
        model=str(_model(geometry)),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16" if device.on_gpu else "float32",
        kv_cache_dtype=form.cache,
        block_size=BLOCK_SIZE,
        max_model_len=max(batch.seq_lens),
        max_num_seqs=most,
        max_num_batched_tokens=max(2048, sum(batch.query_lens), most * queries),
        enforce_eager=not device.on_gpu,
        speculative_config=speculative,
        compilation_config={"mode": 0} | graphs,
    )
    return arguments.create_engine_config()


def _model(geometry: Geometry) -> Path:
    """A folder with nothing but the config.json of a dense model of this geometry."""
    folder = WORK / "attention" / geometry.name
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 32000,
        "hidden_size": geometry.num_heads * geometry.head_size,
        "intermediate_size": 1024,
        "num_hidden_layers": 16,
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "head_dim": geometry.head_size,
        "max_position_embeddings": 1 << 20,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "torch_dtype": "bfloat16",
    }
    path = folder / "config.json"
    text = json.dumps(config, indent=1)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return folder
