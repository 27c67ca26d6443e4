"""Check the bytes of the INT4-KIVI store against a golden file in the repository.

The same tokens come as one prefill, in chunks, one by one, and as drafts of which some are
rejected. Each time the whole groups must hold the golden bytes, and after the prefill every byte of
the pages; each step is also compared with the float64 reference. On the GPU, or without one over
interpreted kernels. Prints STORE BIT-IDENTICAL, else ends with 1.
"""

from __future__ import annotations

import argparse
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.common import Failure, main, say
from scripts.harness import device

GOLDEN = Path(__file__).with_name("golden") / "int4_kivi_store.json"
TOKENS = 38  # two whole groups and a part of a third
Steps = list[tuple[int, int, int]]  # first token, tokens that are right, drafts that are not


@dataclass(frozen=True)
class Shape:
    """Of a layer: channels of a head, KV heads, tokens of a block."""

    head_size: int
    num_kv_heads: int
    block_size: int

    @property
    def name(self) -> str:
        return f"D{self.head_size}-heads{self.num_kv_heads}-block{self.block_size}"


SHAPES = (Shape(64, 3, 16), Shape(80, 1, 48), Shape(128, 2, 32), Shape(256, 1, 16))
WAYS: dict[str, Steps] = {
    "prefill": [(0, TOKENS, 0)],
    "chunks": [(0, 5, 0), (5, 24, 0), (29, 9, 0)],
    "one by one": [(0, 13, 0), *((i, 1, 0) for i in range(13, 18)), (18, TOKENS - 18, 0)],
    "rejected drafts": [(0, 12, 4), (12, 2, 5), (14, 6, 1), (20, 5, 11), (25, 8, 8), (33, 5, 0)],
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.validate_store_equiv", description=__doc__
    )
    sizes = [shape.head_size for shape in SHAPES]
    parser.add_argument("--head-size", type=int, choices=sizes, help="this shape alone")
    parser.add_argument("--save", action="store_true", help="write the golden file anew")
    return parser.parse_args()


def rows(shape: Shape, first: int, count: int, kind: int) -> Any:
    """Numbers of eight bits times powers of two: no generator, the same in every float type.

    Every channel has its own size, some tokens are outliers and some channels zero or constant.
    """
    import torch

    token = torch.arange(first, first + count)[:, None, None]
    head = torch.arange(shape.num_kv_heads)[None, :, None]
    channel = torch.arange(shape.head_size)[None, None, :]
    mixed = ((token * 131 + head * 17 + channel) * 4 + kind) * 2654435761 % 2**32
    mixed = (mixed ^ mixed >> 15) * 1103515245 % 2**32
    mantissa = (mixed >> 8) % 511 - 255
    exponent = (channel * 7 + head) % 9 - 4 - 6 + 2 * (mixed % 29 == 0).long()
    numbers = mantissa.double() * torch.exp2(exponent.double())
    numbers = torch.where(channel % 31 == 5, 0.0, numbers)
    return torch.where(channel % 31 == 11, 3.5, numbers)


class Layer:
    """A cache with its staging pool, for the kernel and for the reference."""

    def __init__(self, shape: Shape):
        import torch
        from vllm.v1.attention.ops.quant_kv.kivi_layout import kivi_views, page_bytes
        from vllm.v1.attention.ops.quant_kv.kivi_slots import SlotMap

        self.shape = shape
        self.place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        # The interpreter has no bfloat16 that can be relied on.
        self.dtype = torch.bfloat16 if self.place.type == "cuda" else torch.float16
        self.blocks = -(-TOKENS // shape.block_size)
        size = self.blocks, page_bytes(shape.block_size, shape.num_kv_heads, shape.head_size)
        sizes = shape.block_size, shape.num_kv_heads, shape.head_size
        self.caches = [torch.zeros(size, dtype=torch.uint8, device=self.place) for _ in range(2)]
        self.views = [kivi_views(cache, *sizes) for cache in self.caches]
        pool = 4, 16, *sizes[1:]
        self.staging = [
            torch.full(pool, float("nan"), dtype=self.dtype, device=self.place) for _ in range(2)
        ]
        self.slot_map = SlotMap(self.blocks * shape.block_size // 16, 4, self.place)

    def step(self, first: int, right: int, drafts: int) -> bool:
        """Store some tokens; whether the kernel left what the reference did."""
        import torch
        from vllm.v1.attention.ops.quant_kv.kivi_reference import store_reference
        from vllm.v1.attention.ops.quant_kv.store_kivi import store_kivi

        drafts = min(drafts, self.blocks * self.shape.block_size - first - right)
        end = first + right + drafts

        def int32(*numbers: int) -> torch.Tensor:
            return torch.tensor(numbers, dtype=torch.int32, device=self.place)

        table = int32(*range(self.blocks))[None]
        self.slot_map.assign(int32(end), int32(0, end - first), table, 1, self.shape.block_size)
        key, value = (
            torch.cat(
                [
                    rows(self.shape, first, right, kind),
                    rows(self.shape, first + right + 1000, drafts, kind),
                ]
            ).to(self.place, self.dtype)
            for kind in (0, 1)
        )
        slots = torch.arange(first, end, device=self.place)
        store_kivi(key, value, self.views[0], self.staging[0], self.slot_map, slots)
        store_reference(
            key, value, self.views[1], self.staging[1], self.slot_map.slot_of_group, slots
        )
        return torch.equal(*self.caches)

    def whole_groups(self, pages: Any) -> Any:
        """The cells of whole groups, of pages [blocks, bytes]."""
        shape = self.shape
        cells = pages.view(self.blocks, shape.num_kv_heads, shape.block_size // 16, -1)
        return cells.transpose(1, 2).flatten(0, 1)[: TOKENS // 16]


def stored(shape: Shape, golden: dict[str, str], save: bool) -> int:
    """Store one shape in every way and say how each went; the number that differ."""
    import torch

    differ = 0
    for way, steps in WAYS.items():
        layer = Layer(shape)
        equal = all([layer.step(*step) for step in steps])
        pages = layer.caches[0].cpu()
        if save and way == "prefill":
            golden[shape.name] = b64encode(pages.numpy().tobytes()).decode()
        right = torch.frombuffer(bytearray(b64decode(golden[shape.name])), dtype=torch.uint8)
        if right.numel() != pages.numel():
            raise Failure(f"{GOLDEN.name} is of other shapes: --save writes it anew")
        right = right.view(pages.shape)
        if way != "prefill":
            pages, right = layer.whole_groups(pages), layer.whole_groups(right)
        wrong = int((pages != right).sum())
        verdict = "pass" if equal and not wrong else "UNEQUAL"
        differ += verdict != "pass"
        detail = f"{wrong} of {right.numel()} bytes differ from the golden file"
        detail += "" if equal else "; a step differs from the float64 reference"
        say(f"{verdict} {shape.name} {way}: {detail}")
    return differ


def run() -> None:
    parsed = arguments()
    device.choose(smoke=True)
    if parsed.save and parsed.head_size:
        raise Failure("--save writes all shapes: leave --head-size out")
    if not parsed.save and not GOLDEN.exists():
        raise Failure(f"no {GOLDEN}: --save writes it")
    golden = {} if parsed.save else json.loads(GOLDEN.read_text())
    chosen = [shape for shape in SHAPES if parsed.head_size in (None, shape.head_size)]
    if missing := [shape.name for shape in chosen if not parsed.save and shape.name not in golden]:
        raise Failure(f"{GOLDEN.name} lacks {', '.join(missing)}: --save writes it anew")
    differ = sum(stored(shape, golden, parsed.save) for shape in chosen)
    if differ:
        saved = "; nothing was saved" if parsed.save else ""
        raise Failure(f"{differ} of {len(chosen) * len(WAYS)} stores differ{saved}")
    if parsed.save:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
        say(f"saved {GOLDEN.name}")
    say("STORE BIT-IDENTICAL")


if __name__ == "__main__":
    main(run)
