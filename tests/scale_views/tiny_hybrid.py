"""A tiny LFM2 with random weights: short convolutions (a recurrent state) and full attention."""

from pathlib import Path

import torch

VOCABULARY, HIDDEN = 96, 64
# States are stored before the first attention layer makes its views, and between the two.
LAYERS = ["conv", "conv", "full_attention", "conv", "full_attention"]


def write(folder: Path) -> None:
    """Write the model as a folder that vllm.LLM takes."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_attention_heads=2,
        num_key_value_heads=1,
        layer_types=LAYERS,
        num_hidden_layers=len(LAYERS),
        max_position_embeddings=128,
        # The kernels for a CPU know this width alone; models use 3.
        conv_L_cache=4,
        block_auto_adjust_ff_dim=False,
        tie_word_embeddings=False,
        # Names that vLLM reads and transformers has dropped.
        block_dim=HIDDEN,
        conv_dim=HIDDEN,
    )
    torch.manual_seed(0)
    model = Lfm2ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                # Large enough that every layer moves the result.
                parameter.normal_(0, 1.5 / parameter.shape[-1] ** 0.5)
    model.save_pretrained(folder)
