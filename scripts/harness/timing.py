"""Times of a step: CUDA-graph replays or launches on a GPU, the wall clock on a CPU."""

from __future__ import annotations

import timeit
from collections.abc import Callable

from scripts.harness import stats

# Bytes over all layers of a step, several times any L2: each layer's cache comes from memory.
BEYOND_L2 = 300_000_000
# Read by the bandwidth's kernel, and as many written: 2 GiB, or a quarter of the free memory.
COPY_BYTES = 2 << 30
HOST_COPY_BYTES = 1 << 20  # interpreted runs time nothing that counts


def times_us(
    step: Callable[[], object], per: int, repeats: int | None, on_gpu: bool, graphs: bool = True
) -> list[float]:
    """Microseconds of one of the `per` layers that a step runs, once a repeat (default 10, 3).

    On a GPU the step is captured, and each time is a mean over some 20 ms of replays; without
    `graphs` each is one run, as the host launches it.
    """
    if on_gpu and not graphs:
        from triton.testing import do_bench

        return [ms * 1e3 / per for ms in do_bench(step, return_mode="all")[-(repeats or 10) :]]
    if on_gpu:
        from triton.testing import do_bench_cudagraph

        times: list[float] = []
        while len(times) < (repeats or 10):
            times += do_bench_cudagraph(step, return_mode="all")
        return [ms * 1e3 / per for ms in times[: repeats or 10]]
    return [s * 1e6 / per for s in timeit.repeat(step, number=1, repeat=repeats or 3)]


def spread_us(
    step: Callable[[], object], per: int, repeats: int | None, on_gpu: bool, graphs: bool = True
) -> dict[str, float]:
    """p20, p50, p80 and number of the times."""
    return stats.spread(times_us(step, per, repeats, on_gpu, graphs))


def layers(bytes_each: int) -> int:
    """How many layers' caches exceed the L2 together; at most 16, at least 1."""
    return max(1, min(16, BEYOND_L2 // max(1, bytes_each) + 1))


def copy_bandwidth(on_gpu: bool) -> float:
    """Bytes a second of a kernel that reads and writes memory, both counted: the peak to compare.

    A kernel, for `copy_` becomes a node of a copy engine in a CUDA graph, and those engines don't
    reach what a kernel does.
    """
    import torch

    size = HOST_COPY_BYTES
    if on_gpu:
        free, _ = torch.cuda.mem_get_info()
        size = min(COPY_BYTES, free // 4)
    # Four bytes an element: torch's elementwise kernels load 16 bytes a thread then.
    source = torch.ones(size // 4, device="cuda" if on_gpu else "cpu", dtype=torch.float32)
    target = torch.empty_like(source)
    median = spread_us(lambda: torch.neg(source, out=target), 1, None, on_gpu)["p50"]
    return 2 * source.nbytes / (median * 1e-6)
