"""The engine of a measurement: its arguments, its capacity, and one step at a time."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

# Cache bytes of an interpreted engine: thousands of the tiny model's tokens.
INTERPRETED_BYTES = 16 << 20


@dataclass(frozen=True)
class Settings:
    """What an engine is made with, as JSON.

    cache: kv_cache_dtype. chunk: most tokens of a step. chunk_each: most tokens of a step that one
    request's prompt gets (0: no limit). requests: most at a time. graphs: full decode graphs of so
    many requests; none: eager. memory: the cache's bytes (int), or the share of the GPU's that the
    whole engine takes (float). drafts: tokens that n-grams of the request's own tokens propose
    for each step (0: no speculation).
    """

    model: str
    cache: str
    dtype: str
    weights: str
    context: int
    requests: int
    chunk: int
    interpreted: bool
    chunk_each: int = 0
    graphs: list[int] = field(default_factory=list)
    memory: float = 0.5
    drafts: int = 0

    @property
    def queries(self) -> int:
        """Tokens of a request that a decoding step takes."""
        return 1 + self.drafts

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def arguments(settings: Settings) -> dict[str, Any]:
    """What vllm.LLM is made with. Tokens go in and out: the engine needs no tokenizer."""
    made: dict[str, Any] = {
        "model": settings.model,
        "dtype": settings.dtype,
        "load_format": settings.weights,
        "kv_cache_dtype": settings.cache,
        "skip_tokenizer_init": True,
        "max_model_len": settings.context,
        "max_num_seqs": settings.requests,
        "max_num_batched_tokens": max(settings.chunk, settings.requests * settings.queries),
        "long_prefill_token_threshold": settings.chunk_each,
        "enable_prefix_caching": False,
        "seed": 0,
    }
    if settings.drafts:
        made["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": settings.drafts,
            "prompt_lookup_max": 4,
            "prompt_lookup_min": 1,
        }
    if settings.interpreted:
        made |= {"kv_cache_memory_bytes": INTERPRETED_BYTES, "block_size": 16}
    elif isinstance(settings.memory, int):
        # The share is held against what is free, though the bytes are what the engine takes.
        made |= {"kv_cache_memory_bytes": settings.memory, "gpu_memory_utilization": 0.01}
    else:
        made |= {"gpu_memory_utilization": settings.memory}
    if not settings.graphs or settings.interpreted:
        return made | {"enforce_eager": True}
    sizes = [requests * settings.queries for requests in sorted(settings.graphs)]
    graphs = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": sizes}
    return made | {"compilation_config": graphs}


@dataclass
class Step:
    """One engine step: its time, the tokens that each request has got in it, what held it up."""

    seconds: float
    tokens: dict[str, list[int]]
    finished: dict[str, str]
    """Finish reason by request, of those that ended."""
    gc_ms: float = 0.0
    """Milliseconds that Python's garbage collection took of it."""
    switches: int = 0
    """How often the system took a thread of this process off its core meanwhile."""


def tokens_per_step(steps: Iterable[Step], requests: Collection[str]) -> float:
    """Mean tokens that one of the requests gets from a step; 0.0 if none got any."""
    got = [
        len(tokens) for step in steps for name, tokens in step.tokens.items() if name in requests
    ]
    return sum(got) / len(got) if got else 0.0


class Collections:
    """Seconds of Python's garbage collection in this process, from now on."""

    def __init__(self) -> None:
        self.seconds = self._start = 0.0
        gc.callbacks.append(self)

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._start


def switches() -> int:
    """How often the system took a thread of this process off its core so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


class Engine:
    """A vLLM engine, driven step by step."""

    def __init__(self, settings: Settings) -> None:
        from vllm import LLM

        self.settings = settings
        self.llm = LLM(**arguments(settings))
        self._engine = self.llm.llm_engine
        self._seen: dict[str, int] = {}
        self._collections = Collections()

    def add(self, name: str, prompt: list[int], tokens: int, ends: list[int] | None = None) -> None:
        """Add a greedy request; it ends after `tokens` tokens, or at one of `ends`."""
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=0,
            max_tokens=tokens,
            ignore_eos=True,
            stop_token_ids=ends or [],
            detokenize=False,
        )
        self._seen[name] = 0
        self._engine.add_request(name, {"prompt_token_ids": prompt}, params)

    def step(self) -> Step:
        """Run one step to its end, also on the GPU."""
        collecting, switched = self._collections.seconds, switches()
        start = time.perf_counter()
        produced = self._engine.step()
        self._wait()
        step = Step(time.perf_counter() - start, {}, {})
        step.switches = switches() - switched
        step.gc_ms = (self._collections.seconds - collecting) * 1e3
        for output in produced:
            answer = output.outputs[0]
            name = output.request_id
            if name not in self._seen:
                continue
            new = list(answer.token_ids[self._seen[name] :])
            self._seen[name] += len(new)
            if new:
                step.tokens[name] = new
            if output.finished:
                step.finished[name] = str(answer.finish_reason)
        return step

    def steps(self) -> Iterator[Step]:
        """Steps until no request is left."""
        while self._engine.has_unfinished_requests():
            yield self.step()

    def until(self, *names: str) -> list[Step]:
        """The steps until each of the requests has got a token."""
        waiting, steps = set(names), []
        while waiting:
            steps.append(self.step())
            waiting -= steps[-1].tokens.keys()
        return steps

    def drop(self, *names: str) -> None:
        """End requests early; nothing more comes of them."""
        for name in names:
            del self._seen[name]
        self._engine.abort_request(list(names))

    def capacity(self) -> dict[str, float]:
        """Tokens that the cache holds and bytes a token takes, by the engine's own plan."""
        plan = self._engine.engine_core.engine_core.scheduler.kv_cache_config
        block = plan.kv_cache_groups[0].kv_cache_spec.block_size
        tokens = plan.num_blocks // len(plan.kv_cache_groups) * block
        used = sum(tensor.size for tensor in plan.kv_cache_tensors)
        return {"tokens_held": tokens, "bytes_per_token": used / tokens}

    def _wait(self) -> None:
        if not self.settings.interpreted:
            import torch

            torch.cuda.synchronize()
