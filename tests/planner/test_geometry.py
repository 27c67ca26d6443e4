"""Reading geometries: by name, from config.json files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.common import Failure
from scripts.plan.geometry import LayerType, find, named

LAGUNA = {
    "num_hidden_layers": 40,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": 512,
    "max_position_embeddings": 131072,
    "layer_types": ["full_attention", *["sliding_attention"] * 3] * 10,
}
QWEN = {
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
}


def write(folder: Path, config: Any) -> Path:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def same_types(config: dict[str, Any], name: str, folder: Path) -> bool:
    (geometry,) = find(str(write(folder, config)))
    expected = named()[name]
    return set(geometry.types) == set(expected.types) and geometry.context == expected.context


def test_layer_types(tmp_path: Path) -> None:
    assert same_types(LAGUNA, "laguna-xs.2", tmp_path)


def test_full_attention_interval_inside_a_multimodal_config(tmp_path: Path) -> None:
    assert same_types({"model_type": "x", "text_config": QWEN}, "qwen3.6-27b", tmp_path)


def test_sliding_window_pattern(tmp_path: Path) -> None:
    gemma = LAGUNA | {
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    }
    del gemma["layer_types"]
    assert same_types(gemma, "gemma-3-27b", tmp_path)


def test_dense_with_heads_by_division(tmp_path: Path) -> None:
    dense = {
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "hidden_size": 576,
        "max_position_embeddings": 2048,
    }
    (geometry,) = find(str(write(tmp_path, dense)))
    assert geometry.types == (LayerType("full", 30, kv_heads=9, head_size=64),)


def test_chunked(tmp_path: Path) -> None:
    llama = LAGUNA | {
        "layer_types": ["full_attention", *["chunked_attention"] * 3] * 10,
        "attention_chunk_size": 8192,
    }
    (geometry,) = find(str(write(tmp_path, llama)))
    assert geometry.types[1] == LayerType("chunked", 30, kv_heads=8, head_size=128, window=8192)


def test_a_folder_stands_for_its_config(tmp_path: Path) -> None:
    write(tmp_path, LAGUNA)
    assert find(str(tmp_path))[0].title == tmp_path.name


def test_all_and_names() -> None:
    assert [geometry.name for geometry in find("all")] == list(named())
    assert find("gemma-3-27b") == [named()["gemma-3-27b"]]


def test_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(Failure) as failure:
        find("gemma-9")
    assert "gemma-9" in str(failure.value)
    assert all(name in str(failure.value) for name in named())


@pytest.mark.parametrize(
    "config,message",
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ({"num_hidden_layers": 2}, "num_attention_heads"),
        ({}, "num_hidden_layers"),
        (LAGUNA | {"layer_types": ["linear_attention"] * 40}, "linear_num_key_heads"),
        (LAGUNA | {"layer_types": ["hyena"] * 40}, "hyena"),
    ],
)
def test_a_config_that_does_not_tell(tmp_path: Path, config: Any, message: str) -> None:
    with pytest.raises(Failure, match=message):
        find(str(write(tmp_path, config)))
