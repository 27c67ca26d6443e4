"""What a full CUDA graph does, on a CPU: the model runs once, and its operations are replayed.

A graph holds what the model did when it was captured: the operations, the addresses and all that
Python decided, for example which requests are decodes.  So does this: a replay repeats each torch
operation and each launch of an interpreted kernel on the tensors of the capture, and runs no other
Python of the model.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from triton.runtime import interpreter

DISPATCH_KEY = torch._C.DispatchKey.CPU


class Recorder(TorchDispatchMode):
    """Runs what happens inside it, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Callable[[], None]] = []
        self.launching = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.launching:
            return func(*args, **kwargs)
        if func.namespace == "vllm":
            # An operation that is Python itself: what it does is recorded, not that it was called.
            with self:
                return func._op_dk(DISPATCH_KEY, *args, **kwargs)
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            raise RuntimeError(f"{func} can't be captured: the host would wait for the device")
        result = func(*args, **kwargs)

        def again() -> None:
            new_result = func(*args, **kwargs)
            for old, new in zip(*(tree_flatten(x)[0] for x in (result, new_result)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        self.operations.append(again)
        return result

    def launch(self, launch: Callable[..., Any], grid: Any, args: Any, kwargs: Any) -> None:
        self.launching = True
        try:
            launch(grid, *args, **kwargs)
        finally:
            self.launching = False
        self.operations.append(lambda: launch(grid, *args, **kwargs))


class Graphs:
    """The runner's model, replayed in steps that run a full graph.

    Attributes:
        modes: how the runner had each step run: "FULL" or "NONE".
    """

    def __init__(self, sizes: list[int]) -> None:
        """Graphs of so many tokens; the engine must not exist yet."""
        from vllm.config import CUDAGraphMode
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        self.full = CUDAGraphMode.FULL
        self.captured: dict[Any, tuple[list[Callable[[], None]], Any]] = {}
        self.modes: list[str] = []
        self.recorder: Recorder | None = None
        initialize = GPUModelRunner.initialize_attn_backend
        launch = interpreter.GridExecutor.__call__

        def with_graphs(runner: Any, *args: Any, **kwargs: Any) -> None:
            # The CPU's platform has turned them off.
            runner.compilation_config.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY
            runner.compilation_config.cudagraph_capture_sizes = sizes
            runner.compilation_config.max_cudagraph_capture_size = max(sizes)
            initialize(runner, *args, **kwargs)

        def recorded(grid: Any, *args: Any, **kwargs: Any) -> None:
            if self.recorder is None:
                launch(grid, *args, **kwargs)
            else:
                self.recorder.launch(launch, grid, args, kwargs)

        GPUModelRunner.initialize_attn_backend = with_graphs
        interpreter.GridExecutor.__call__ = recorded

    def capture(self, engine: Any) -> None:
        """Capture all graphs, as a GPU's runner does at its start."""
        runner = engine.model_executor.driver_worker.worker.model_runner
        self.model = runner.model
        runner.model = self
        for mode, descriptors in runner.cudagraph_dispatcher.get_capture_descs():
            for descriptor in descriptors:
                runner._dummy_run(
                    descriptor.num_tokens,
                    cudagraph_runtime_mode=mode,
                    uniform_decode=descriptor.uniform,
                    is_graph_capturing=True,
                )
        assert self.captured
        self.modes.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from vllm.forward_context import get_forward_context

        context = get_forward_context()
        self.modes.append(context.cudagraph_runtime_mode.name)
        if context.cudagraph_runtime_mode != self.full:
            return self.model(*args, **kwargs)
        if context.batch_descriptor not in self.captured:
            with Recorder() as self.recorder:
                output = self.model(*args, **kwargs)
            operations, self.recorder = self.recorder.operations, None
            self.captured[context.batch_descriptor] = operations, output
            return output
        operations, output = self.captured[context.batch_descriptor]
        for operation in operations:
            operation()
        return output
