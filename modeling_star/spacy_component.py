"""A spaCy pipeline component: `nlp.add_pipe("modeling_star", config={"model": FOLDER})`."""

import json
import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from spacy.scorer import Scorer, get_ner_prf
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.util import filter_spans, minibatch

from .errors import UserError


if TYPE_CHECKING:
    from .inference import Predictor
    from .inference.prediction import Dtype

logger = logging.getLogger(__name__)


class SpacyComponent:
    """
    Predictions of a saved model as annotations of a `Doc`.

    A tagger of entities adds to `doc.ents`, one of parts of speech sets `token.tag_`, a classifier adds to `doc.cats`.
    An entity that ends within a token of spaCy gets the whole token. `doc._.modeling_star[name]` has the predictions
    of the component with that name as `Predictor` returns them, scores included, and `doc.spans[name]` all entities
    with `attrs["scores"]`; the score of an entity is also in `span._.score`. Of readings
    that overlap, `doc.ents` has the most probable one.

    Args:
        name: of the component.
        model: a folder or Hub name; loaded with the first text.
        batch_size: the most texts predicted at once.
        overwrite: whether predictions replace the tags and the overlapping entities of earlier components. Otherwise
            these remain, as with spaCy's own tagger and entity ruler. Blocked tokens never get an entity, and a
            category of the same name is always replaced.
        dtype: the precision, as of a `Predictor`.
        min_probability: as of a `Predictor`.
    """

    def __init__(
        self,
        name: str,
        model: str,
        batch_size: int,
        overwrite: bool = False,
        dtype: "Dtype | None" = "auto",
        min_probability: float | None = None,
    ) -> None:
        self.name, self.model, self.overwrite = name, model, overwrite
        self.options: dict[str, Any] = {"batch_size": batch_size, "dtype": dtype, "min_probability": min_probability}
        if not Doc.has_extension("modeling_star"):
            Doc.set_extension("modeling_star", default={})
        if not Span.has_extension("score"):
            Span.set_extension("score", default=None)

    @cached_property
    def predictor(self) -> "Predictor":
        """The loaded model; a UserError for another task, or for pairs of texts."""
        from .inference import Predictor  # needs `datasets`, which a pipeline without this component does not

        predictor = Predictor(self.model, text_column_name="text", **self.options)
        if predictor.pairs or predictor.saved.task not in ("token-classification", "text-classification"):
            kind = "pairs of texts" if predictor.pairs else predictor.saved.task
            raise UserError(f"{self.model} is a model for {kind}: name a tagger or a classifier of single texts.")
        predictor.load()
        return predictor

    def __call__(self, doc: Doc) -> Doc:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """The documents with their annotations, in order; `nlp.pipe` calls it with its `batch_size`."""
        for docs in minibatch(stream, batch_size):
            for doc, found in zip(docs, self.predictor({"text": [doc.text for doc in docs]})["found"], strict=True):
                doc._.modeling_star[self.name] = found
                if self.predictor.saved.task == "token-classification":
                    self._set_spans(doc, found)
                else:
                    doc.cats |= {each.get("label", "value"): each.get("score", each.get("value")) for each in found}
                yield doc

    def _set_spans(self, doc: Doc, found: list[dict[str, Any]]) -> None:
        spans: list[Span] = [
            doc.char_span(each["start"], each["end"], each["label"], alignment_mode="expand") for each in found
        ]
        if self.predictor.entity_groups.outside is None:  # every word has a label
            for span in spans:
                for token in span:
                    if self.overwrite or not token.tag:
                        token.tag_ = span.label_
            return
        scores = [each["score"] for each in found]
        doc.spans[self.name] = SpanGroup(doc, name=self.name, spans=spans, attrs={"scores": scores})
        probable = sorted(zip(scores, spans, strict=True), key=lambda pair: -pair[0])
        for score, span in reversed(probable):  # of two types of one span the more probable one comes last
            span._.score = score
        if self.predictor.min_probability is None:
            apart = filter_spans(spans)  # spaCy allows no overlap; the longest span of several remains
            if len(apart) < len(spans):
                logger.warning(
                    f"{len(spans) - len(apart)} of {len(spans)} entities share a token with another: omitted."
                )
        else:  # of readings that overlap, the most probable ones
            apart, taken = [], set[int]()
            for _, span in probable:
                if taken.isdisjoint(tokens := range(span.start, span.end)):
                    apart.append(span)
                    taken.update(tokens)
        blocked = [doc[token.i : token.i + 1] for token in doc if token.ent_iob_ == "B" and not token.ent_type]
        earlier, new = list(doc.ents), _apart(apart, blocked)
        if self.overwrite:
            earlier = _apart(earlier, new)
            for token in (token for span in new for token in span):
                token.ent_id_ = ""  # of the replaced entity, which `set_ents` keeps (spaCy 3.8)
        else:
            new = _apart(new, earlier)
        doc.set_ents([*earlier, *new], blocked=blocked)

    def score(self, examples: Iterable[Example], **options: Any) -> dict[str, Any]:
        """What `nlp.evaluate` and `spacy evaluate` measure: of entities, of tags, or of the categories of texts."""
        if self.predictor.saved.task == "token-classification":
            if self.predictor.entity_groups.outside is None:
                return Scorer.score_token_attr(examples, "tag", **options)
            return get_ner_prf(examples)
        labels = list(self.predictor.saved.config.id2label.values())
        if self.predictor.saved.config.problem_type == "regression":
            return {}
        return Scorer.score_cats(examples, "cats", labels=labels, multi_label=self.predictor.has_several)

    def to_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> None:
        """Save model and tokenizer in a folder, as `nlp.to_disk` does."""
        from .training.checkpoints import seal_model

        path = Path(path)
        if path.resolve() != Path(self.model).resolve():  # not over the weights that it reads
            self.predictor.pytorch_model.save_pretrained(path)
            self.predictor.tokenizer.save_pretrained(path)
            text = json.dumps(self.predictor.saved.arguments, ensure_ascii=False, indent=2)
            (path / "arguments.json").write_text(text + "\n", encoding="utf-8")
            seal_model(path)

    def from_disk(self, path: str | Path, exclude: Iterable[str] = ()) -> "SpacyComponent":
        """Use the model in a folder, as `spacy.load` does, whatever the configuration names."""
        self.model = str(path)
        vars(self).pop("predictor", None)
        return self


def _apart(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The spans that share no token with any of the others."""
    taken = {token.i for other in others for token in other}
    return [span for span in spans if taken.isdisjoint(range(span.start, span.end))]


@Language.factory(
    "modeling_star",
    default_config={"batch_size": 128, "overwrite": False, "dtype": "auto", "min_probability": None},
    assigns=["doc.ents", "doc.cats", "token.tag", "doc._.modeling_star"],
)
def create(
    nlp: Language,
    name: str,
    model: str,
    batch_size: int,
    overwrite: bool,
    dtype: "Dtype | None",
    min_probability: float | None,
) -> SpacyComponent:
    """The component; an entry point of the package, so that spaCy finds its name."""
    return SpacyComponent(name, model, batch_size, overwrite, dtype, min_probability)
