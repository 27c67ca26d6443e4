"""python -m scripts.plan.steptime: what the scheduler and block tables take for each cache group.

Times the host's part of a decode step that grows with the number of groups and needs no GPU: blocks
for every request (KVCacheManager.allocate_slots) and the block tables' copies. The metadata that
attention backends build from them comes on top, so this is a lower bound of a group's time.
"""

from __future__ import annotations

import argparse
import time
from math import lcm
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from tabulate import tabulate  # type: ignore[import-untyped]

from scripts import common
from scripts.harness import options, result, tree
from scripts.plan import planner
from scripts.plan.geometry import Geometry, find

PROMPT = 4096
WARMUP = 20


class Step:
    """A decode step of `requests` running requests over a plan's groups."""

    def __init__(self, groups: list[Any], context: int, requests: int) -> None:
        import torch
        from vllm.sampling_params import SamplingParams
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.request import Request
        from vllm.v1.worker.block_table import MultiGroupBlockTable

        config = planner.config(context)
        module = planner.after()
        kv_config = module.get_kv_cache_config_from_groups(
            config,
            groups,
            2 * requests * module._max_memory_usage_bytes_from_groups(config, groups),
        )
        sizes = [group.kv_cache_spec.block_size for group in groups]
        self.manager = KVCacheManager(
            kv_config,
            max_model_len=context,
            scheduler_block_size=lcm(*sizes),
            hash_block_size=lcm(*sizes),
            max_in_flight_tokens=planner.IN_FLIGHT_TOKENS,
            enable_caching=False,
        )
        self.tables = MultiGroupBlockTable(
            max_num_reqs=requests,
            max_num_batched_tokens=2048,
            pin_memory=False,
            device=torch.device("cpu"),
            block_sizes=sizes,
            kernel_block_sizes=sizes,
            max_num_blocks=[context // size + 2 for size in sizes],
        )
        self.requests = [
            Request(
                request_id=str(number),
                prompt_token_ids=[0] * PROMPT,
                sampling_params=SamplingParams(max_tokens=context),
                pooling_params=None,
            )
            for number in range(requests)
        ]
        for row, request in enumerate(self.requests):
            blocks = self.manager.allocate_slots(request, PROMPT)
            assert blocks is not None
            request.num_computed_tokens = PROMPT
            self.tables.add_row(blocks.get_block_ids(), row)

    def run(self) -> float:
        """One token for every request; CPU seconds (what others do on the machine stays out)."""
        start = time.thread_time()
        for row, request in enumerate(self.requests):
            blocks = self.manager.allocate_slots(request, 1)
            assert blocks is not None
            ids = blocks.get_block_ids(allow_none=True)
            if ids is not None:
                self.tables.append_row(ids, row)
        self.tables.commit_block_table(len(self.requests))
        spent = time.thread_time() - start
        for request in self.requests:
            request.append_output_token_ids(0)
            request.num_computed_tokens += 1
        return spent


def measure(geometry: Geometry, requests: int, steps: int) -> list[dict[str, Any]]:
    """Median CPU time of a step for each rule; the rules take turns and so share the noise."""
    specs = planner.specs(geometry)
    import torch

    torch.set_num_threads(1)  # the copies are small: more threads only wait for each other
    made = {rule: planner.grouped(rule, geometry.context, specs) for rule in planner.RULES}
    runs = {rule: Step(groups, geometry.context, requests) for rule, groups in made.items()}
    times: dict[str, list[float]] = {rule: [] for rule in planner.RULES}
    # Memory can be pinned only where a device is visible, and the planner hides them all.
    with mock.patch("vllm.v1.utils.PIN_MEMORY", False):
        for turn in range(WARMUP + steps):
            for rule, step in runs.items():
                spent = step.run()
                if turn >= WARMUP:
                    times[rule].append(spent)
    return [
        {
            "model": geometry.name,
            "rule": rule,
            "groups": len(made[rule]),
            "requests": requests,
            "step_us": round(1e6 * median(times[rule]), 1),
            "per_group_us": round(1e6 * median(times[rule]) / len(made[rule]), 1),
        }
        for rule in planner.RULES
    ]


def _run() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.plan.steptime", description=__doc__)
    parser.add_argument("--model", default="all", help="a name, a config.json, or all (default)")
    parser.add_argument("--requests", type=int, default=32, help="running requests")
    parser.add_argument("--steps", type=int, default=200, help="timed steps of each rule")
    parser.add_argument("--json", metavar="FILE", help="write JSON too")
    arguments = parser.parse_args()
    rows = [
        row
        for geometry in find(arguments.model)
        for row in measure(geometry, arguments.requests, arguments.steps)
    ]
    print(tabulate([row.values() for row in rows], headers=list(rows[0])))
    if arguments.json:
        series, dirty = tree.read()
        about = {"name": "steptime", "command": options.command(), "series": series.record()}
        result.write(Path(arguments.json), about | {"dirty": dirty, "rows": rows})


if __name__ == "__main__":
    common.main(_run)
