"""The tests' end of engine_host.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from interpreted_platform import environment

from scripts.serving.child import ENVIRONMENT

HERE = Path(__file__).parent
# Seven blocks of 16 tokens can be used: one request of the greatest length, not two of 70 tokens.
BLOCKS = 8


class Engine:
    """One engine in a process of its own, over interpreted kernels; native: over the GPU's.

    blocks: of the cache; 0: as many as the engine finds memory for.
    """

    def __init__(
        self,
        model: Path,
        cache: str,
        log: Path,
        blocks: int = BLOCKS,
        options: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None,
        native: bool = False,
    ) -> None:
        self.log = log
        command = [sys.executable, str(HERE / "engine_host.py"), str(model), cache, str(blocks)]
        environ = os.environ | ENVIRONMENT | ({} if native else environment())
        # The drafter would have torch compile C++, for which a machine may lack the compiler.
        environ["TORCHDYNAMO_DISABLE"] = "1"
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*command, json.dumps(options or {})],
                env=environ | (variables or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def play(self, *requests: dict[str, Any], forget: bool = True) -> dict[str, Any]:
        """Run requests; `forget` empties the prefix cache first."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"requests": requests, "forget": forget}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the engine died:\n{self.log.read_text()[-4000:]}"
        return json.loads(answer)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
