"""What the demo runs: prompts, cache formats, and the size that each device can afford."""

from dataclasses import asdict, dataclass

PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def add(a, b):\n    return",
    "The three primary colors are",
)
# kv_cache_dtype as vllm.LLM takes it; "auto" is the model's own dtype. The first is the reference.
CACHES = ("auto", "int8_per_token_head")


@dataclass(frozen=True)
class Settings:
    """One device's demo. `memory` is the cache's size in bytes, equal for every cache format."""

    device: str
    dtype: str
    tokens: int
    memory: int
    interpreted: bool

    def dump(self) -> dict[str, object]:
        return asdict(self)


def for_device(gpu: bool, tokens: int | None = None) -> Settings:
    """Natively in bfloat16 on a GPU; elsewhere few tokens, in float32, over interpreted kernels."""
    if gpu:
        return Settings("cuda", "bfloat16", tokens or 64, 1 << 30, interpreted=False)
    return Settings("cpu", "float32", tokens or 8, 64 << 20, interpreted=True)
