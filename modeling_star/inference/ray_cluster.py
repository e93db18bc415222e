"""Predictions by the workers of a Ray cluster, each of which loads the model once."""

import copy
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.text_types import Text
from ..errors import UserError
from .prediction import Predictor
from .prediction_files import Predicted, Window, with_sources


class Worker:
    """A process of the cluster, with a GPU or a core of its own."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(self, part: Path, texts: list[Text], delimiter: str | None) -> tuple[Path, list[Any], int]:
        """The predictions of the texts of a part, and how many of these were truncated."""
        self.predictor.delimiter = delimiter
        before = self.predictor.texts_cut
        predicted = self.predictor.predict(texts)
        return part, predicted, self.predictor.texts_cut - before


def connect(address: str) -> None:
    """Connect to a cluster by an address of `ray.init`; "local" starts one that ends with this process."""
    try:
        import ray
    except ModuleNotFoundError:
        raise UserError("Ray is not installed: write pip install ray.") from None
    try:
        ray.init(address, logging_level=logging.WARNING)
    except (ConnectionError, ValueError):
        raise UserError(
            f"There is no Ray cluster at {address!r}: write --ray local to start one on this machine, or the "
            "HOST:PORT that `ray start --head` prints."
        ) from None


def predict_on_ray(predictor: Predictor, parts: Iterable[tuple[Path, Window]]) -> Iterator[tuple[Path, Predicted]]:
    """
    The predictions of the windows of some parts, in the order in which they are done, by the cluster that this process
    is connected with: a worker for each free GPU, or else each core. Raises the UserError of a worker.
    """
    import ray
    from ray.util import ActorPool

    sent = copy.copy(predictor)
    if Path(predictor.saved.name).is_dir():  # a worker elsewhere has another working directory
        sent.saved = replace(predictor.saved, name=str(Path(predictor.saved.name).resolve()))
    free = ray.available_resources()
    device = "GPU" if free.get("GPU") else "CPU"
    make = ray.remote(Worker).options(num_cpus=1, num_gpus=int(device == "GPU"))
    pool = ActorPool([make.remote(sent) for _ in range(max(int(free.get(device, 0)), 1))])

    waiting: dict[Path, Window] = {}  # their other columns stay here

    def next_done() -> tuple[Path, Predicted]:
        try:
            part, predicted, cut = pool.get_next_unordered()
        except ray.exceptions.RayTaskError as error:
            # The traceback of a fault of the code is in the text of Ray's error.
            raise error.cause from None if isinstance(error.cause, UserError) else error
        predictor.texts_seen += len(predicted)
        predictor.texts_cut += cut
        return part, with_sources(waiting.pop(part), predicted)

    for part, window in parts:  # `pool.map` reads all of them before its first result (Ray 2.60)
        if not pool.has_free():
            yield next_done()
        waiting[part] = window
        item = part, [text for _, text in window], predictor.delimiter
        pool.submit(lambda worker, item: worker.predict.remote(*item), item)
    while pool.has_next():
        yield next_done()
