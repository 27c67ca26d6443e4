"""Shapes by vLLM's own grammar, and the units of the times."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from scripts.attention import bench, shapes
from scripts.common import Failure
from scripts.harness import options, timing


@pytest.mark.parametrize(
    ("spec", "kind", "queries", "lengths"),
    [
        ("q1s32k", "decode", (1,), (32768,)),
        ("8q6s4k", "verify", (6,) * 8, (4096,) * 8),
        ("q2ks32k", "prefill", (2048,), (32768,)),
        ("q2k", "prefill", (2048,), (2048,)),
        ("q2k_2q1s1k", "mixed", (2048, 1, 1), (2048, 1024, 1024)),
    ],
)
def test_batches_read_as_upstream_reads_them(
    spec: str, kind: str, queries: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    one = shapes.batch(spec)
    assert (one.kind, one.query_lens, one.seq_lens) == (kind, queries, lengths)


def test_what_is_no_batch_is_refused_with_the_grammar() -> None:
    with pytest.raises(Failure, match="8q1s1k") as refused:
        shapes.batch("32k")
    assert "'32k'" in str(refused.value)
    with pytest.raises(Failure, match="6 query tokens over 4 tokens"):
        shapes.batch("q6s4")


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(Failure, match="known are qwen3.6-27b, laguna-xs"):
        shapes.geometry("gpt-2")
    with pytest.raises(Failure, match="known are fa-bf16"):
        shapes.format_named("int3")


def test_every_default_shape_and_format_is_sound() -> None:
    for kind in ("decode", "verify", "prefill"):
        assert {shapes.batch(spec).kind for spec in shapes.batches(kind)} == {kind}
    for form in shapes.formats().values():
        if form.same_as:
            other = shapes.format_named(form.same_as)
            assert other.cache == form.cache and not other.fused and form.agreement > 0


def parsed(*words: str) -> argparse.Namespace:
    return options.parser("bench_x", "About it.", shapes=True).parse_args(words)


def test_flags_choose_the_shapes() -> None:
    chosen = bench.shapes(parsed("--geometry", "gpt-oss", "--batch", "q1s1k", "q5s9"), ("decode",))
    assert [(shape.name, one.spec) for shape, one in chosen] == [
        ("gpt-oss", "q1s1k"),
        ("gpt-oss", "q5s9"),
    ]
    usual = bench.shapes(parsed(), ("decode",))
    assert {one.kind for _, one in usual} == {"decode"}
    assert {shape.name for shape, _ in usual} == set(bench.DEFAULT_GEOMETRIES)


def test_times_on_a_gpu_are_graph_replays_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("triton.testing")
    asked = []

    def replays(step: object, return_mode: str) -> list[float]:
        asked.append(return_mode)
        return [2.0] * 9 + [6.0]  # ms

    monkeypatch.setattr(testing, "do_bench_cudagraph", replays)
    assert timing.times_us(lambda: None, 4, 12, on_gpu=True) == [500.0] * 9 + [1500.0] + [500.0] * 2
    assert asked == ["all", "all"]


def test_what_no_graph_holds_is_timed_as_it_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("triton.testing")
    monkeypatch.setattr(testing, "do_bench", lambda step, return_mode: [1.0, 2.0, 4.0])
    assert timing.times_us(lambda: None, 2, 2, on_gpu=True, graphs=False) == [1000.0, 2000.0]


def test_stores_are_timed_where_groups_end_and_where_they_do_not() -> None:
    chosen = bench.shapes(parsed("--geometry", "laguna-xs"), ("store",))
    tokens = {(sum(one.query_lens), one.seq_lens[0] % 16) for _, one in chosen}
    # The batch at any places starts at the fourth of a group.
    assert tokens == {(1, 0), (1, 10), (32, 0), (32, 10), (32, 4), (2048, 0)}


def test_times_on_a_cpu_are_the_wall_clocks() -> None:
    times = timing.times_us(lambda: sum(range(20000)), 2, 5, on_gpu=False)
    assert len(times) == 5 and all(1 < one < 1e6 for one in times)


@pytest.mark.parametrize("free", [None, 1 << 20])
def test_the_copy_bandwidth_is_a_kernels(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    """free: bytes of a GPU's memory; None: no GPU."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    ran = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            ran.append((str(func), args[0].nbytes, kwargs["out"]))
            return func(*args, **kwargs)

    def timer(step: Callable[[], object], per: int, *_: object) -> dict[str, float]:
        with Watch():
            step()
        return {"p50": 1e6 * per}  # us: one second

    def on_the_host(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *size, device, **more: make(*size, **more)

    monkeypatch.setattr(timing, "spread_us", timer)
    if free:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 1 << 40))
        monkeypatch.setattr(torch, "ones", on_the_host(torch.ones))
    rate = timing.copy_bandwidth(on_gpu=free is not None)
    ((kernel, size, target),) = ran
    # Not aten::copy_, which a graph replays on a copy engine.
    assert kernel == "aten.neg.out" and target.eq(-1).all()
    assert size == (free // 4 if free else timing.HOST_COPY_BYTES)
    assert rate == 2 * size == 2 * target.nbytes


@pytest.mark.parametrize(("size", "layers"), [(10, 16), (10**8, 4), (10**9, 1)])
def test_layers_exceed_the_l2_together(size: int, layers: int) -> None:
    assert timing.layers(size) == layers
    assert layers == 16 or layers * size >= timing.BEYOND_L2


def test_a_card_that_is_too_small_is_said_and_a_wrong_kernel_ends_the_run() -> None:
    torch = pytest.importorskip("torch")

    def full() -> dict[str, float]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def wrong() -> dict[str, float]:
        raise Failure("the kernel is wrong")

    assert bench.fitting({"a": 1}, lambda: {"b": 2.0}) == {"a": 1, "b": 2.0}
    assert "memory" in bench.fitting({"a": 1}, full)["unavailable"]
    with pytest.raises(Failure, match="wrong"):
        bench.fitting({"a": 1}, wrong)
