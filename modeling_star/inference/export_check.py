"""What a user of an exported model would see: entities and labels that differ from PyTorch's, on a file of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .inputs import shown
from .output_rows import Prediction, Source
from .prediction import Predictor, SavedModel
from .prediction_files import predict_windows


if TYPE_CHECKING:
    from ..data.text_types import Text

MAX_CHANGED = 0.001
"""The share of entities or labels that may change by default."""

Finding = tuple[int, int, str]
"""A label and what it is of: the characters of an entity, or the number of a label among those of a text."""
Pair = tuple[Finding | None, Finding | None]


@dataclass(frozen=True)
class Changes:
    """
    What another runtime predicts differently.

    Args:
        total: the entities or labels that PyTorch predicts.
        pairs: the number of a text, what PyTorch predicts and what the other does in its stead; `None`: nothing.
    """

    total: int
    pairs: list[tuple[int, Pair]]

    @property
    def share(self) -> float:
        """Of `total`, which is positive."""
        return len(self.pairs) / self.total


def changes(expected: Sequence[Sequence[Finding]], actual: Sequence[Sequence[Finding]]) -> Changes:
    """
    Compare the predictions of each text.

    An entity with another span or type counts once, with the first new one that overlaps it; one that is lost counts
    once, and so does a new one that overlaps none of those.
    """
    pairs: list[tuple[int, Pair]] = []
    for number, (of_torch, of_other) in enumerate(zip(expected, actual, strict=True)):
        lost = [each for each in of_torch if each not in of_other]
        new = [each for each in of_other if each not in of_torch]
        for old in lost:
            overlapping = [each for each in new if each[0] < old[1] and old[0] < each[1]]
            pairs.append((number, (old, overlapping[0] if overlapping else None)))
            new = [each for each in new if each not in overlapping]
        pairs += [(number, (None, each)) for each in new]
    return Changes(sum(map(len, expected)), pairs)


class ExportCheck:
    """
    Compares exported files with PyTorch in float32 on some texts, and prints what changes.

    Args:
        saved: the model that is exported.
        rows: the texts.
        source: their file, for messages.
        max_changed: the largest share of entities or labels that may change.

    Raises:
        UserError: the model predicts neither, or there is no text.
    """

    def __init__(
        self, saved: SavedModel, rows: Sequence[tuple[Source, "Text"]], source: str, max_changed: float = MAX_CHANGED
    ) -> None:
        if saved.task not in ("token-classification", "text-classification") or (
            saved.config.problem_type == "regression"
        ):
            raise UserError(f"--check compares entities and labels, and {saved.name} predicts neither: omit it.")
        if not rows:
            raise UserError(f"{source} has no text to check the export on: name another file.")
        self.saved, self.rows, self.source, self.max_changed = saved, rows, source, max_changed
        self.noun = "entities" if saved.task == "token-classification" else "labels"

    def __call__(self, folder: Path, names: Sequence[str]) -> None:
        """
        Predict with PyTorch and with some files of an export, and print a line for each and its first ten changes.

        Raises:
            UserError: one of them changes more than `max_changed`, or PyTorch finds nothing that could change.
        """
        in_torch = Predictor(self.saved, dtype="float32")
        in_torch.instructions = None  # the reference: no compiled layers
        expected, texts = self._findings(in_torch)
        total = sum(map(len, expected))
        print(f"PyTorch (float32): {len(texts):,} texts, {total:,} {self.noun}")
        if not total:
            raise UserError(
                f"PyTorch finds none of its {self.noun} in {self.source}, so that nothing is checked, and nothing is "
                "written: name a file that has some."
            )
        results = {}
        for name in names:
            found, _ = self._findings(Predictor(SavedModel.load(str(folder / name))))
            result = results[name] = changes(expected, found)
            print(f"{name}: {len(result.pairs):,} of {total:,} {self.noun} changed ({result.share:.3%})")
            for number, pair in result.pairs[:_SHOWN]:
                print(f"    {self._row(number)}: {' -> '.join(self._shown(each, texts[number]) for each in pair)}")
        for name, result in results.items():
            if not result.share <= self.max_changed:
                least = -(-len(result.pairs) * 10_000 // total) / 10_000  # rounded up, so that it is enough
                raise UserError(
                    f"{name} changes {len(result.pairs):,} of {total:,} {self.noun} in {self.source}, and at most "
                    f"{self.max_changed:g} of them may change: nothing is written, and an earlier export stays. "
                    + ("Omit --int8, or accept" if "int8" in name else "Accept")
                    + f" it with --max_changed {least:g}."
                )

    def _findings(self, predictor: Predictor) -> tuple[list[list[Finding]], list["Text"]]:
        """The predictions of each text, and the texts, their words joined."""
        rows = [row for window in predict_windows(predictor, self.rows) for row in window]
        return [self._of_text(found) for _, _, found in rows], [text for _, text, _ in rows]

    def _of_text(self, found: Sequence[Prediction]) -> list[Finding]:
        if self.noun == "entities":
            return [(each["start"], each["end"], each["label"]) for each in found]
        if self.saved.config.problem_type != "multi_label_classification":
            return [(0, 1, each["label"]) for each in found[:1]]  # the best one
        numbers = {label: number for number, label in self.saved.config.id2label.items()}
        labels = sorted(each["label"] for each in found if each["predicted"])
        return [(numbers[label], numbers[label] + 1, label) for label in labels]

    def _row(self, number: int) -> str:
        source, text = self.rows[number]
        row = f"row {source.index}" if source.file is None else f"{source.file}, row {source.index}"
        return row if self.noun == "entities" else f"{row}, {shown(text)}"

    def _shown(self, finding: Finding | None, text: "Text") -> str:
        if finding is None:
            return "nothing"
        start, end, label = finding
        return f"{label} {start}-{end} {shown(text[start:end])}" if self.noun == "entities" else label


_SHOWN = 10
