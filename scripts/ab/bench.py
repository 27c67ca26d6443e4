"""Runs a bench alternately over the old and the new kernel, in fresh processes, and compares.

A bench is the module scripts/bench_NAME.py, run as `python -m scripts.bench_NAME --json FILE`. It
writes {"cases": {CASE: {"median_us": number, ...}, ...}, ...} to FILE; what it says besides the
cases (the machine, versions) goes into the result as it is.

Each version has compile caches of its own (vLLM's, Triton's, Inductor's) under .cache/ab/, named
by what is compiled: a graph of the other kernel can't be reused, and the folder may be deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from scripts.ab.swap import NEW, SCRATCH, Swapper
from scripts.common import CACHE, ROOT, VLLM, Failure, git, say

LEAST_PAIRS = 5
PR_SET_PDEATHSIG = 1

# case -> median in microseconds
Medians = dict[str, float]


@dataclass(frozen=True)
class Pair:
    """What one run of the old kernel and the run of the new one after it measured."""

    old: Medians
    new: Medians

    def ratios(self) -> Medians:
        """new / old of the cases that both measured: below 1 the new kernel is faster."""
        both = [case for case in self.old if case in self.new]
        return {case: round(self.new[case] / self.old[case], 4) for case in both}


def module_of(name: str) -> str:
    """The module that BENCH names. Raises Failure if there is none."""
    benches = sorted(path.stem for path in (ROOT / "scripts").glob("bench_*.py"))
    if not re.fullmatch(r"[a-z0-9_]+", name) or f"bench_{name}" not in benches:
        known = ", ".join(bench.removeprefix("bench_") for bench in benches) or "none yet"
        raise Failure(f"no bench {name!r}: it would be scripts/bench_{name}.py (known: {known})")
    return f"scripts.bench_{name}"


def bench(swapper: Swapper, kernel: str, name: str, pairs: int, flags: list[str]) -> None:
    """Run the bench in pairs, print each and the summary, write results/ab/; ends with new in.

    flags: of the bench, besides --json.

    Raises Failure for too few pairs, an unknown bench or one that fails.
    """
    if pairs < LEAST_PAIRS:
        raise Failure(
            f"{pairs} pairs are too few: clocks and temperature move single runs by more than a "
            f"kernel's gain, and a median needs at least {LEAST_PAIRS} pairs to show that"
        )
    module = module_of(name)
    sides = {"old": kernel, "new": NEW}
    say(f"{kernel}: {pairs} pairs of {module}, old without:")
    for subject in swapper.kernels[kernel].patches:
        say(f"  {subject}")
    done: list[Pair] = []
    about: dict[str, Any] = {}
    with _ended_as_by_ctrl_c():
        try:
            for number in range(1, pairs + 1):
                measured: dict[str, Medians] = {}
                for side, version in sides.items():
                    swapper.put(version)
                    caches = CACHE / "ab" / swapper.cache_key(version)
                    measured[side], about = _run(module, flags, f"pair-{number}-{side}", caches)
                done.append(Pair(**measured))
                if not done[-1].ratios():
                    raise Failure(f"{module}: no case was measured with both old and new files")
                _print_pair(number, pairs, done[-1])
        finally:
            with _unstoppable():
                swapper.put(NEW)
                say("the new files are in again")
    summary = summarise(done)
    _print_summary(summary)
    result = _save(swapper, kernel, name, flags, done, summary, about)
    say(f"written: {result.relative_to(ROOT)}")


def summarise(pairs: list[Pair]) -> dict[str, dict[str, float]]:
    """Per case: the medians over all runs, and the median of the pairs' ratios with its range."""
    ratios = [pair.ratios() for pair in pairs]
    summary = {}
    for case in ratios[0]:
        values = [ratio[case] for ratio in ratios if case in ratio]
        row = {
            "old_median_us": median(pair.old[case] for pair in pairs if case in pair.old),
            "new_median_us": median(pair.new[case] for pair in pairs if case in pair.new),
            "ratio": median(values),
            "ratio_low": min(values),
            "ratio_high": max(values),
        }
        summary[case] = {key: round(value, 4) for key, value in row.items()}
    return summary


def read_medians(file: Path) -> tuple[Medians, dict[str, Any]]:
    """A bench's JSON as its cases' medians and all that it says besides. Raises ValueError."""
    data = json.loads(file.read_text(encoding="utf-8"))
    try:
        medians = {case: float(row["median_us"]) for case, row in data.pop("cases").items()}
    except (AttributeError, KeyError, TypeError) as wrong:
        raise ValueError(f"not the form of a bench's result ({wrong!r})") from None
    if not medians:
        raise ValueError("no cases")
    bad = [case for case, value in medians.items() if not 0 < value < float("inf")]
    if bad:
        raise ValueError(f"no positive time for {', '.join(bad)}")
    return medians, data


def _run(module: str, flags: list[str], label: str, caches: Path) -> tuple[Medians, dict[str, Any]]:
    """One fresh process of the bench."""
    python = ROOT / ".venv" / "bin" / "python"
    out, log = SCRATCH / f"{label}.json", SCRATCH / f"{label}.log"
    out.unlink(missing_ok=True)
    env = {
        **os.environ,
        "VLLM_CACHE_ROOT": str(caches / "vllm"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    command = [python if python.exists() else sys.executable, "-m", module, *flags, "--json", out]
    say(f"{label}: running, log in {log.relative_to(ROOT)}")
    start = time.monotonic()
    with log.open("wb") as output, _process(command, env, output) as process:
        code = process.wait()
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise Failure(f"{module} ended with {code} ({label}); its log {log} ends:\n{tail}")
    try:
        result = read_medians(out)
    except (OSError, ValueError) as wrong:
        raise Failure(f"{module} --json wrote no usable result ({label}): {wrong}") from None
    say(f"{label}: {time.monotonic() - start:.1f} s")
    return result


@contextlib.contextmanager
def _process(command: list[Any], env: dict[str, str], output: Any) -> Iterator[subprocess.Popen]:
    """A child in a session of its own, ended with all its children if anything interrupts us."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output,
        stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_die_with_parent,
    )  # fmt: skip
    try:
        yield process
    finally:
        # Also after a normal end: an engine process left behind would disturb the next run.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _die_with_parent() -> None:
    """In the child: be killed when the harness is, so that no orphan keeps the GPU busy."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the run the way Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {kind: signal.signal(kind, interrupt) for kind in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextlib.contextmanager
def _unstoppable() -> Iterator[None]:
    """Hold signals back while the files are restored: a second Ctrl-C comes after it."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _print_pair(number: int, pairs: int, pair: Pair) -> None:
    ratios = pair.ratios()
    for case in dict.fromkeys((*pair.old, *pair.new)):
        old, new = (f"{side[case]:10.2f}" if case in side else f"{'-':>10}"
                    for side in (pair.old, pair.new))  # fmt: skip
        ratio = f"{ratios[case]:6.3f}" if case in ratios else f"{'-':>6}"
        say(f"pair {number}/{pairs}  old {old} us  new {new} us  new/old {ratio}  {case}")


def _print_summary(summary: dict[str, dict[str, float]]) -> None:
    say(f"{'old us':>10} {'new us':>10} {'new/old':>8}   lowest .. highest   case")
    for case, row in summary.items():
        say(
            f"{row['old_median_us']:10.2f} {row['new_median_us']:10.2f} {row['ratio']:8.3f}   "
            f"{row['ratio_low']:6.3f} .. {row['ratio_high']:7.3f}   {case}"
        )


def _save(
    swapper: Swapper,
    kernel: str,
    name: str,
    flags: list[str],
    pairs: list[Pair],
    summary: dict[str, dict[str, float]],
    about: dict[str, Any],
) -> Path:
    """Write results/ab/KERNEL-BENCH-DEVICE.json: one file a device, the newest run wins."""
    device = device_name()
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    result = ROOT / "results" / "ab" / f"{kernel}-{name}-{slug}.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "kernel": kernel,
        "bench": name,
        "command": f"make ab KERNEL={kernel} BENCH={name} PAIRS={len(pairs)}"
        + (f' FLAGS="{shlex.join(flags)}"' if flags else ""),
        "device": device,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "stack": git("rev-parse", "HEAD", cwd=VLLM).strip(),
        "old_is_without": list(swapper.kernels[kernel].patches),
        "cases": summary,
        "pairs": [{"old": pair.old, "new": pair.new, "ratio": pair.ratios()} for pair in pairs],
        "bench_says": about,
    }
    fresh = SCRATCH / result.name
    fresh.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, result)
    return result


def device_name() -> str:
    """The first GPU's name as the driver gives it, "cpu" without one."""
    if not shutil.which("nvidia-smi"):
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else "cpu"
