"""A scratch repository with a committed series, and runs of a script that measures in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ab_fixtures import Stack
from series_lab import REPOSITORY

HERE = Path(__file__).parent

GPU = {"name": "NVIDIA H200", "uuid": "GPU-aaaa"}


@dataclass
class Bench:
    """A repository, and runs of counting_bench.py in it: on a GPU of the fake NVML, or on none."""

    stack: Stack
    scratch: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> list[str]:
        """The cells that were measured so far, by all runs."""
        path = self.scratch / "log"
        return path.read_text().split() if path.exists() else []

    def gpus(self, *gpus: dict[str, Any]) -> None:
        """From here on, runs see these."""
        path = self.scratch / "nvml.json"
        path.write_text(json.dumps({"gpus": gpus}))
        self.variables["FAKE_NVML"] = str(path)

    def start(
        self, *arguments: str, module: str | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        """`python counting_bench.py ARGUMENTS`, or `python -m MODULE ARGUMENTS`."""
        hidden = ("DEVICE", "CUDA_VISIBLE_DEVICES", "FAKE_NVML")
        inherited = self.stack.environment()
        environment = {name: value for name, value in inherited.items() if name not in hidden}
        environment |= self.variables | variables
        environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, (HERE / "fake_nvml", HERE, REPOSITORY))),
            "LOG": str(self.scratch / "log"),
            "TMPDIR": str(self.scratch),
        }
        program = ["-m", module] if module else [str(HERE / "counting_bench.py")]
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=self.stack.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(
        self, *arguments: str, code: int = 0, module: str | None = None, **variables: str
    ) -> str:
        """Run to the end; the exit code must be `code`. Returns all output in one line."""
        process = self.start(*arguments, module=module, **variables)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output
        return " ".join(output.split())

    def result(self, path: str) -> dict[str, Any]:
        return json.loads((self.stack.root / path).read_text())

    def commit(self) -> str:
        """Commit the repository around vllm/; returns the commit."""
        self.stack.git("add", "--all", cwd=self.stack.root)
        self.stack.git("commit", "--quiet", "--message=The series", cwd=self.stack.root)
        return self.stack.git("rev-parse", "HEAD", cwd=self.stack.root).strip()
