"""One engine in one process: generate from the prompts and write what was measured as JSON.

Run by the demo alone: `python -m scripts.demo.worker SETTINGS CACHE MODEL OUT`.  A line on standard
output is a count of finished steps; everything that the engine says goes to standard error.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.demo.settings import PROMPTS, Settings

MAX_MODEL_LEN = 256


def environment(settings: Settings) -> dict[str, str]:
    """The variables of this process; set before anything imports torch."""
    common = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if settings.interpreted:
        from interpreted_platform import environment as interpreted

        return common | interpreted() | {"OMP_NUM_THREADS": "1"}
    return common


def engine_arguments(settings: Settings, cache: str, model: str) -> dict[str, Any]:
    """What vllm.LLM is made with."""
    arguments: dict[str, Any] = {
        "model": model,
        "dtype": settings.dtype,
        "kv_cache_dtype": cache,
        "kv_cache_memory_bytes": settings.memory,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": len(PROMPTS),
        "block_size": 16,
        "enable_prefix_caching": False,
        "seed": 0,
    }
    if settings.interpreted:
        return arguments | {"enforce_eager": True}
    graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}
    return arguments | {"compilation_config": graphs}


def capacity(engine: Any) -> dict[str, float]:
    """Bytes of cache a token takes and tokens that the memory holds, by the engine's own plan."""
    plan = engine.engine_core.engine_core.scheduler.kv_cache_config
    block = plan.kv_cache_groups[0].kv_cache_spec.block_size
    tokens = plan.num_blocks // len(plan.kv_cache_groups) * block
    used = sum(tensor.size for tensor in plan.kv_cache_tensors)
    return {"bytes_per_token": used / tokens, "tokens_held": tokens}


def generate(engine: Any, settings: Settings) -> dict[str, Any]:
    """Greedy tokens and texts of the prompts, the time to all first tokens and per later token."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=settings.tokens, ignore_eos=True)
    for index, prompt in enumerate(PROMPTS):
        engine.add_request(str(index), prompt, params)
    steps: list[float] = []
    answers: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        start = time.perf_counter()
        for output in engine.step():
            answers[output.request_id] = output.outputs[0]
        steps.append(time.perf_counter() - start)
        print(len(steps), flush=True)
    ordered = [answers[str(index)] for index in range(len(PROMPTS))]
    return {
        "tokens": [list(answer.token_ids) for answer in ordered],
        "texts": [answer.text for answer in ordered],
        "first_token_s": steps[0],
        "step_s": sorted(steps[1:])[len(steps[1:]) // 2],
    }


def measure(settings: Settings, cache: str, model: str) -> dict[str, Any]:
    """Start the engine and measure one cache format."""
    from vllm import LLM

    engine = LLM(**engine_arguments(settings, cache, model)).llm_engine
    print(0, flush=True)
    if not settings.interpreted:
        # Compiles the kernels; what follows is timed.
        generate(engine, replace(settings, tokens=2))
    return {"cache": cache} | capacity(engine) | generate(engine, settings)


if __name__ == "__main__":
    chosen = Settings(**json.loads(sys.argv[1]))
    os.environ.update(environment(chosen))
    result = measure(chosen, cache=sys.argv[2], model=sys.argv[3])
    Path(sys.argv[4]).write_text(json.dumps(result))
