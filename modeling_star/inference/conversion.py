"""
What a conversion changes: the states and logits of random texts, and the predictions of a file and their speed.

Axes: n tokens  d width  k labels
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from ..data.text_types import Text, joined
from ..errors import UserError
from ..kernels.cpu import WITH_BFLOAT16
from .output_rows import Prediction
from .prediction import Dtype, Predictor
from .saved_model import SavedModel


TOLERANCE = 1e-4
"""The largest difference of a state or a logit that is accepted."""
SHORTEST, LONGEST, TEXTS = 8, 129, 64
_SHOWN = 5  # texts whose predictions differ


@torch.inference_mode()
def check_random_texts(name: str, encoder: PreTrainedModel, model: PreTrainedModel, longest: int) -> str:
    """
    The largest differences of states and logits of random token ids, in texts of SHORTEST to `longest` tokens, as a
    line to print; a UserError where one is above TOLERANCE.
    """
    generator = torch.Generator().manual_seed(0)
    largest: dict[str, float] = {}
    for length in torch.linspace(SHORTEST, longest, TEXTS).int().tolist():
        ids = torch.randint(encoder.config.vocab_size, (1, length), generator=generator)
        ids[ids == encoder.config.pad_token_id] += 1  # RoBERTa has no position there
        outputs, expected = (x(ids, output_hidden_states=True) for x in (model, encoder))
        pairs = {"states": (outputs.hidden_states[-1], expected.hidden_states[-1])}
        pairs |= {key: (outputs[key], expected[key]) for key in expected if key.endswith("logits")}
        for key, (values, wanted) in pairs.items():
            largest[key] = max(largest.get(key, 0.0), float((values - wanted).abs().max()))
    found = ", ".join(f"{key} {difference:.0e}" for key, difference in largest.items())
    if not all(difference <= TOLERANCE for difference in largest.values()):
        raise UserError(
            f"The converted model differs from {name} on random texts by more than {TOLERANCE:g} ({found}): it has a "
            "part that is not converted. Serve it as it is: modeling-star predict NAME --file FILE"
        )
    return f"{TEXTS} random texts of {SHORTEST} to {longest} tokens differ from the encoder's by at most: {found}"


def compare_predictions(encoder: SavedModel, folder: str, texts: Sequence[Text], radius: int) -> Iterator[str]:
    """Lines about the predictions of an encoder in float32 by PyTorch, and those of what was made of it."""
    original = Predictor(encoder, dtype="float32", batch_size=8)  # larger ones pad more, and gain nothing on a CPU
    original.instructions = None
    expected, speed = _timed(original, texts)
    yield f"{encoder.name}, float32, PyTorch: {speed:.1f} texts per second"
    sides = [text if isinstance(text, tuple) else (text,) for text in joined(texts)]
    is_covered = [len(original.tokenizer(*text, verbose=False)["input_ids"]) <= radius + 1 for text in sides]
    groups = {
        f"texts of up to {radius + 1} tokens": [n for n, covered in enumerate(is_covered) if covered],
        "longer ones": [n for n, covered in enumerate(is_covered) if not covered],
    }
    dtypes: list[Dtype] = ["float32"]
    if Predictor(folder).instructions in WITH_BFLOAT16:
        dtypes.append("auto")
    for dtype in dtypes:
        predictor = Predictor(folder, dtype=dtype)
        found, speed = _timed(predictor, texts)
        numbers = predictor.computation.splitlines()[1].removeprefix("numbers: ")
        yield f"{folder}, {numbers}: {speed:.1f} texts per second; predicted otherwise:"
        decided = [tuple(map(_decided, pair)) for pair in zip(expected, found, strict=True)]
        for name, members in groups.items():
            if not members:
                continue
            differing = [n for n in members if decided[n][0] != decided[n][1]]
            largest = max((_difference(found[n], expected[n]) for n in members), default=0.0)
            yield f"    {len(differing)} of {len(members)} {name}; scores differ by at most {largest:.1e}"
            for number in differing[:_SHOWN]:
                before, after = decided[number]
                changes = [_listed(before - after), _listed(after - before)]
                yield f"        {str(texts[number])[:60]!r}: {' -> '.join(changes)}"


def _timed(predictor: Predictor, texts: Sequence[Text]) -> tuple[list[list[Prediction]], float]:
    """The predictions of texts, and texts per second without loading."""
    predictor.predict(texts[:1])
    begin = time.perf_counter()
    predicted = predictor.predict(texts)
    return [found for _, found in predicted], len(texts) / (time.perf_counter() - begin)


def _scores(found: Sequence[Prediction]) -> dict[tuple[Any, ...], float]:
    """The scores of labels, entities or answers, or the number that is predicted."""
    return {
        tuple(entry[key] for key in ("label", "start", "end") if key in entry): entry.get("score", entry.get("value"))
        for entry in found
    }


def _difference(found: Sequence[Prediction], expected: Sequence[Prediction]) -> float:
    """The largest difference of a score of what both predict."""
    scores, others = _scores(found), _scores(expected)
    return max((abs(scores[key] - others[key]) for key in scores.keys() & others.keys()), default=0.0)


def _decided(found: Sequence[Prediction]) -> frozenset[tuple[Any, ...]]:
    """The label of a text, or all that are predicted; entities; the answer."""
    if found and "start" not in found[0] and "predicted" not in found[0]:
        found = found[:1]
    return frozenset(_scores([entry for entry in found if entry.get("predicted", True)]))


def _listed(predicted: frozenset[tuple[Any, ...]]) -> str:
    return ", ".join(" ".join(map(str, each)) for each in sorted(predicted)) or "nothing"
