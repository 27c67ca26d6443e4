"""Follows the steps of an engine's requests, and reads what INT4-KIVI's cache holds of them."""

from typing import Any

GROUP = 16


class PageProbe:
    """Follows the blocks of an engine's requests; sealed: reads them, too, when one is done.

    The first layer's K and V depend on tokens and positions alone: the bytes of its sealed groups
    must not tell how the tokens came.
    """

    def __init__(self, engine: Any, sealed: bool) -> None:
        self.reads = sealed
        core = engine.engine_core.engine_core
        self.manager = core.scheduler.kv_cache_manager
        self.requests = core.scheduler.requests
        runner = core.model_executor.driver_worker.worker.model_runner
        layers = runner.vllm_config.compilation_config.static_forward_context
        self.layer = layers[min(layers)]
        self.blocks: dict[str, list[int]] = {}
        self.computed: dict[str, list[int]] = {}

    def before_step(self) -> None:
        """Remember the blocks of all requests, and how many tokens each has computed.

        Tokens of rejected drafts don't count: the engine must not schedule ahead.
        """
        for name, request in self.requests.items():
            edges = self.computed.setdefault(name, [])
            if not edges or edges[-1] != request.num_computed_tokens:
                edges.append(request.num_computed_tokens)
            blocks = list(self.manager.get_block_ids(name)[0])
            if blocks:
                # A later request may have an earlier one's number.
                self.blocks.pop(name, None)
                self.blocks[name] = blocks

    def told(self, request_id: str, num_tokens: int) -> dict[str, Any]:
        """What an answer says of a request that is done, and has stored so many tokens."""
        return {
            "sealed": self._sealed(request_id, num_tokens) if self.reads else "",
            "edges": self._edges(request_id, num_tokens),
        }

    def _edges(self, request_id: str, num_tokens: int) -> list[int]:
        """The first token of each step of the request, and the end of the last."""
        return [*self.computed.pop(self._name(request_id, self.computed)), num_tokens]

    def _name(self, request_id: str, names: dict[str, Any]) -> str:
        """The engine's name of a request of ours, the latest one."""
        return [name for name in names if name.split("-")[0] == request_id][-1]

    def _sealed(self, request_id: str, num_tokens: int) -> str:
        """The bytes of the request's sealed groups among its first tokens, as hexadecimal."""
        import torch
        from vllm.v1.attention.ops.quant_kv.kivi_layout import kivi_views

        cache, heads = self.layer.kv_cache, self.layer.num_kv_heads
        views = kivi_views(cache, cache.shape[2], heads, self.layer.head_size)
        blocks = self.blocks[self._name(request_id, self.blocks)]
        cells = []
        for group in range(num_tokens // GROUP):
            block, place = divmod(group, views.block_size // GROUP)
            for plane in (views.key_codes, views.key_scales, views.value_codes, views.value_scales):
                cells.append(plane[blocks[block], :, place].flatten())
        return bytes(torch.cat(cells).tolist()).hex() if cells else ""
