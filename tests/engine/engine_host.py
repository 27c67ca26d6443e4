"""A process that holds one engine: a line of JSON in is a scenario, a line out is what came of it.

`python engine_host.py MODEL CACHE BLOCKS OPTIONS`.  OPTIONS is a line of JSON too: arguments of
vllm.LLM, "range_tokens" to prefill through a scratch of so many, "graphs" to replay decodes of so
many tokens, "warm" to warm the kernels of quantised caches up, as engines do that are not eager,
and "steps" for answers that tell the steps of each request, too: its edges, and of an INT4-KIVI
cache the bytes of the sealed groups.  The tests' own process stays free of vllm, so that
its platform isn't fixed for the other tests.
"""

import json
import os
import sys
from typing import Any

import torch
from cpu_graphs import Graphs
from flash_hook import FlashHook
from page_probe import PageProbe
from random_llama import MAX_LENGTH


def start(model: str, cache: str, blocks: int, options: dict[str, Any]) -> Any:
    """The engine, with room for `blocks` blocks of 16 tokens (one of them is never used).

    blocks: 0: as many as there is memory for.
    """
    from vllm import LLM

    arguments: dict[str, Any] = dict(
        model=model,
        skip_tokenizer_init=True,
        dtype="float32",
        kv_cache_dtype=cache,
        max_model_len=MAX_LENGTH,
        max_num_seqs=4,
        block_size=16,
        num_gpu_blocks_override=blocks or None,
        kv_cache_memory_bytes=1 << 24,
        enable_prefix_caching=True,
        enforce_eager=True,
        disable_log_stats=False,
        seed=0,
    )
    # Where the CPU has the instructions, a convolution's weights are packed for kernels that have
    # no float32.
    torch.cpu._is_avx512_bf16_supported = lambda: False
    return LLM(**arguments | options).llm_engine


def warm_up(engine: Any, hook: FlashHook) -> None:
    """What a GPU's worker does when it starts. It must have launched something."""
    from vllm.model_executor.warmup.quant_kv_warmup import quant_kv_warmup

    worker = engine.engine_core.engine_core.model_executor.driver_worker.worker
    quant_kv_warmup(worker.model_runner)
    assert hook.causal and hook.ranges


def counts(engine: Any, hook: FlashHook | None) -> dict[str, int]:
    """What happened since the engine's start."""
    counted = {
        "preemptions": "vllm:num_preemptions",
        "drafted": "vllm:spec_decode_num_draft_tokens",
        "accepted": "vllm:spec_decode_num_accepted_tokens",
    }
    metrics = engine.get_metrics()
    sums = {
        key: sum(int(metric.value) for metric in metrics if metric.name == name)
        for key, name in counted.items()
    }
    if hook is not None:
        sums |= {"causal": hook.causal, "ranges": hook.ranges}
    return sums


def play(
    engine: Any,
    scenario: dict[str, Any],
    hook: FlashHook | None,
    graphs: Graphs | None,
    probe: PageProbe | None,
) -> dict[str, Any]:
    """Add each request when its step has come, run until all are done.

    A request is {"prompt": token ids, "tokens": how many to generate, "arrives": step}.
    """
    from vllm import SamplingParams

    if scenario["forget"]:
        engine.reset_prefix_cache()
    before = counts(engine, hook)
    if graphs is not None:
        graphs.modes.clear()
    waiting = dict(enumerate(scenario["requests"]))
    outputs: dict[int, Any] = {}
    stored: dict[int, dict[str, Any]] = {}
    step = most = 0
    while waiting or engine.has_unfinished_requests():
        for index in [i for i, request in waiting.items() if request["arrives"] <= step]:
            request = waiting.pop(index)
            params = SamplingParams(
                temperature=0,
                max_tokens=request["tokens"],
                ignore_eos=True,
                logprobs=1,
                detokenize=False,
            )
            engine.add_request(str(index), {"prompt_token_ids": request["prompt"]}, params)
        if probe is not None:
            probe.before_step()
        produced = engine.step()
        most = max(most, len(produced))
        outputs |= {int(output.request_id): output for output in produced}
        step += 1
        for output in produced if probe is not None else []:
            if output.finished:
                request = scenario["requests"][int(output.request_id)]
                # The last token is never stored.
                count = len(request["prompt"]) + request["tokens"] - 1
                stored[int(output.request_id)] = probe.told(output.request_id, count)
    answers = [outputs[index].outputs[0] for index in sorted(outputs)]
    return {
        "tokens": [list(answer.token_ids) for answer in answers],
        "logprobs": [
            [
                chosen[token].logprob
                for chosen, token in zip(answer.logprobs, answer.token_ids, strict=True)
            ]
            for answer in answers
        ],
        "cached": [outputs[index].num_cached_tokens for index in sorted(outputs)],
        "most_in_a_step": most,
        "modes": graphs.modes if graphs is not None else [],
        "sealed": [stored[index]["sealed"] for index in sorted(stored)],
        "edges": [stored[index]["edges"] for index in sorted(stored)],
        "reserved_bytes": torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0,
    } | {key: count - before[key] for key, count in counts(engine, hook).items()}


def serve() -> None:
    """Answer scenarios until standard input ends."""
    # The engine's own prints must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    options = json.loads(sys.argv[4])
    range_tokens = options.pop("range_tokens", None)
    hook = FlashHook(range_tokens) if range_tokens is not None else None
    sizes = options.pop("graphs", None)
    graphs = Graphs(sizes) if sizes else None
    steps, warm = options.pop("steps", False), options.pop("warm", False)
    engine = start(sys.argv[1], sys.argv[2], int(sys.argv[3]), options)
    if warm:
        assert hook is not None
        warm_up(engine, hook)
    if graphs is not None:
        graphs.capture(engine)
    probe = PageProbe(engine, sys.argv[2] == "int4_kivi") if steps else None
    for line in sys.stdin:
        answer = play(engine, json.loads(line), hook, graphs, probe)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
    # The engine's own end takes seconds, and leaves nothing that anybody reads.
    sys.stderr.flush()
    os._exit(0)
