"""scripts/validate_store_equiv.py passes, and notices one byte, a stale file and none."""

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path

from scripts.common import ROOT
from scripts.validate_store_equiv import GOLDEN, SHAPES

SHAPE = SHAPES[1]
# The script with another golden file, over two of the ways in which tokens come.
ELSEWHERE = """
import sys
from pathlib import Path
import scripts.validate_store_equiv as script
script.GOLDEN = Path(sys.argv.pop(1))
script.WAYS = {way: script.WAYS[way] for way in ("prefill", "rejected drafts")}
script.main(script.run)
"""


def check(golden: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(golden), *arguments],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )


def test_a_shape_is_bit_identical() -> None:
    done = check(GOLDEN, "--head-size", str(SHAPE.head_size))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    *lines, last = done.stdout.splitlines()
    assert last == "STORE BIT-IDENTICAL"
    assert len(lines) == 2 and all(line.startswith(f"pass {SHAPE.name}") for line in lines)


def test_one_other_byte_fails(tmp_path: Path) -> None:
    """In a whole group all ways see it, in the last one the prefill alone."""
    golden = json.loads(GOLDEN.read_text())
    pages = bytearray(b64decode(golden[SHAPE.name]))
    pages[0] ^= 1
    pages[-1] ^= 1
    golden[SHAPE.name] = b64encode(pages).decode()
    file = tmp_path / "golden.json"
    file.write_text(json.dumps(golden))
    done = check(file, "--head-size", str(SHAPE.head_size))
    assert done.returncode == 1, done.stdout + done.stderr[-3000:]
    assert "STORE BIT-IDENTICAL" not in done.stdout
    assert f"prefill: 2 of {len(pages)} bytes differ" in done.stdout
    assert "rejected drafts: 1 of " in done.stdout
    assert "2 of 2 stores differ" in done.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = check(tmp_path / "none.json")
    assert done.returncode == 1 and "--save writes it" in done.stderr


def test_a_file_of_other_shapes(tmp_path: Path) -> None:
    file = tmp_path / "golden.json"
    file.write_text("{}")
    done = check(file, "--head-size", str(SHAPE.head_size))
    assert done.returncode == 1 and f"lacks {SHAPE.name}" in done.stderr


def test_a_part_cannot_be_saved() -> None:
    done = check(GOLDEN, "--head-size", str(SHAPE.head_size), "--save")
    assert done.returncode == 1 and "leave --head-size out" in done.stderr
