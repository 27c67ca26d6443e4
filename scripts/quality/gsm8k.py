"""GSM8K by lm-eval over our engine: a worker. lm-eval brings prompts, examples and the judgement.

lm-eval isn't part of the build: REQUIREMENT names it. Its data comes from the hub's local cache, or
from a folder with train.jsonl and test.jsonl (question, answer) as their authors publish them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.common import Failure
from scripts.harness import inputs
from scripts.quality.tasks import Answer
from scripts.serving import child, generate
from scripts.serving.engines import Engine, Settings
from scripts.serving.models import Model, Text

if TYPE_CHECKING:
    from lm_eval.api.model import LM  # type: ignore[import-not-found]

REQUIREMENT = "lm-eval==0.4.13"
TASK = "gsm8k"
# The judgement that takes the last number of an answer, whatever its form.
FILTER = "flexible-extract"
FILES = {"train": "train.jsonl", "test": "test.jsonl"}


def require(folder: Path | None) -> None:
    """Raise Failure unless lm-eval is installed, and a folder that is given holds the data."""
    if importlib.util.find_spec("lm_eval") is None:
        raise Failure(
            f"GSM8K is asked through lm-eval: .venv/bin/python -m pip install {REQUIREMENT}, or "
            "leave it out (--tasks humaneval)"
        )
    missing = [name for name in FILES.values() if folder and not (folder / name).is_file()]
    if missing:
        raise Failure(
            f"{folder} holds no {missing[0]}: give the folder with GSM8K's train.jsonl and "
            "test.jsonl (lines of question and answer), as its authors' repository has them"
        )


def data(folder: Path | None) -> list[inputs.Input]:
    """The files of a folder that was named, recorded; the hub's cache has no file to name."""
    if folder is None:
        return []
    return [inputs.Input(f"gsm8k {split}", folder / name) for split, name in FILES.items()]


def measure(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Question number -> Answer's record.

    job: engine (Settings), model (Model), tokens (most of an answer), questions (how many),
    examples (answered questions before each), folder (of the data, or None: the hub's cache).
    Raises Failure if the data isn't at hand.
    """
    from lm_eval import simple_evaluate  # type: ignore[import-not-found]
    from lm_eval.tasks import TaskManager  # type: ignore[import-not-found]

    try:
        (task,) = TaskManager().load([_task(job["folder"])])["tasks"].values()
    except (ConnectionError, OSError, ValueError) as problem:
        raise Failure(
            f"GSM8K's data isn't at hand ({type(problem).__name__}): give --gsm8k FOLDER with its "
            "train.jsonl and test.jsonl, or run once where the hub is reachable "
            f"(python -c \"import datasets; datasets.load_dataset('openai/gsm8k', 'main')\")"
        ) from problem
    task.set_config(key="num_fewshot", value=job["examples"])
    model = adapter(job)
    found = simple_evaluate(model=model, tasks=[task], limit=job["questions"], bootstrap_iters=0)
    samples = [one for one in found["samples"][TASK] if one["filter"] == FILTER]
    return {
        f"{TASK}/{one['doc_id']}": Answer(
            bool(one["exact_match"] == 1.0),
            model.cut[one["doc_id"]],
            str(one["filtered_resps"][0])[:80],
        ).record()
        for one in samples
    }


def _task(folder: str | None) -> str | dict[str, Any]:
    """lm-eval's own task, reading the folder if one is given."""
    if folder is None:
        return TASK
    import lm_eval
    import yaml

    own = Path(lm_eval.__file__).parent / "tasks" / TASK / f"{TASK}.yaml"
    files = {split: str(Path(folder) / name) for split, name in FILES.items()}
    data = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    return yaml.safe_load(own.read_text()) | data


def adapter(job: dict[str, Any]) -> LM:
    """Our engine as lm-eval sees a model; `cut`: doc_id -> whether its answer was cut off."""
    from lm_eval.api.model import LM

    class Greedy(LM):
        def __init__(self) -> None:
            super().__init__()
            self.text = Text(Model(**job["model"]))
            self.engine = Engine(Settings(**job["engine"]))
            self.cut: dict[int, bool] = {}

        def generate_until(self, requests: list[Any]) -> list[str]:
            stops = requests[0].args[1]["until"]
            room = self.engine.settings.context - job["tokens"]
            prompts = [self.text.encode(request.args[0])[-room:] for request in requests]
            found, _ = generate.answers(self.engine, self.text, prompts, job["tokens"], stops)
            for request, answer in zip(requests, found, strict=True):
                self.cut[request.doc_id] = answer["finish"] == "length"
            return [_before(answer["text"], stops) for answer in found]

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            raise Failure(f"{TASK} is asked for answers, not for likelihoods")

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise Failure(f"{TASK} is asked for answers, not for likelihoods")

    return Greedy()


def _before(text: str, stops: list[str]) -> str:
    """The text up to the first of the stops."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


if __name__ == "__main__":
    child.serve(measure)
