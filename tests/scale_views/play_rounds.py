"""Play the same requests in one new engine: first, again, and after its cache was filled with NaN.

`python play_rounds.py FOLDER CACHE` writes the model to FOLDER, and prints the rounds as JSON: for
each request its tokens and the log-probabilities of those.  A process of its own, so that the
tests' process stays free of vllm.
"""

import json
import sys
from pathlib import Path
from typing import Any

import tiny_hybrid
import torch

PROMPT_LENGTHS, NEW_TOKENS = (20, 5), 6
NAN_BYTE = 0xFF


def start(model: str, cache: str) -> Any:
    from vllm import LLM

    # Where the CPU has the instructions, a convolution's weights are packed for kernels that have
    # no float32.
    torch.cpu._is_avx512_bf16_supported = lambda: False
    return LLM(
        model=model,
        kv_cache_dtype=cache,
        # A second request must not find the blocks of the first, which may be corrupt.
        enable_prefix_caching=False,
        num_gpu_blocks_override=8,
        kv_cache_memory_bytes=1 << 24,
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
    )


def play(llm: Any) -> list[tuple[list[int], list[float]]]:
    """Run the requests one after the other."""
    from vllm import SamplingParams

    params = SamplingParams(
        temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, logprobs=1, detokenize=False
    )
    random = torch.Generator().manual_seed(0)
    answers = []
    for length in PROMPT_LENGTHS:
        prompt = torch.randint(1, tiny_hybrid.VOCABULARY, (length,), generator=random).tolist()
        (output,) = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        answer = output.outputs[0]
        chosen = zip(answer.logprobs, answer.token_ids, strict=True)
        answers.append((list(answer.token_ids), [step[token].logprob for step, token in chosen]))
    return answers


def poison(llm: Any) -> None:
    """Fill the memory of all layers' caches with NaN."""
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    for layer in runner.compilation_config.static_forward_context.values():
        caches = [layer.kv_cache] if isinstance(layer.kv_cache, torch.Tensor) else layer.kv_cache
        for cache in caches:
            everything = torch.empty(0, dtype=torch.uint8, device=cache.device)
            everything.set_(cache.untyped_storage()).fill_(NAN_BYTE)


def main() -> None:
    # The engine's own prints must not mix with the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    folder, cache = sys.argv[1:]
    tiny_hybrid.write(Path(folder))
    llm = start(folder, cache)
    rounds = {"first": play(llm), "second": play(llm)}
    poison(llm)
    rounds["poisoned"] = play(llm)
    print(json.dumps(rounds), file=answer)


if __name__ == "__main__":
    main()
