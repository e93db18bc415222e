"""The spaCy component sets what the predictor finds, in batches, and after a round trip on disk."""

from pathlib import Path
from typing import Any

import pytest
import spacy
import torch
from common import TINY
from spacy.tokenizer import Tokenizer
from transformers import AutoTokenizer

import modeling_star
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.inference import Predictor


IOB = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TEXTS = ["Ada Lovelace met Charles Babbage in London.", "London/Paris", "", "It rained all day; Ada read in (London)."]


def saved(folder: Path, head: str, labels: list[str], **fields: Any) -> str:
    torch.manual_seed(1)
    tokenizer = train_tokenizer(TEXTS, "wordpiece", lower_case=False, vocab_size=120)
    fields |= {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    tiny = {name: value for name, value in TINY.items() if name != "num_labels"}
    fields = {**tiny, "vocab_size": len(tokenizer), **fields}
    model = getattr(modeling_star, f"StarTransformerFor{head}")(modeling_star.StarTransformerConfig(**fields))
    for weight in model.parameters():
        weight.data.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def pipeline(model: str) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("modeling_star", config={"model": model})
    return nlp


def spans(doc: Any) -> list[tuple[str, int, int]]:
    return [(span.label_, span.start_char, span.end_char) for span in doc.ents]


def test_entities_are_those_of_the_predictor_and_survive_the_disk(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tagger", "TokenClassification", IOB)
    expected = [
        [(entity["label"], entity["start"], entity["end"]) for entity in found]
        for found in Predictor(folder)({"text": TEXTS})["found"]
    ]
    assert sum(map(len, expected)) > 5
    nlp = pipeline(folder)
    assert [spans(doc) for doc in nlp.pipe(TEXTS, batch_size=3)] == expected  # spaCy's tokens end where entities do
    assert [spans(nlp(text)) for text in TEXTS] == expected
    nlp.to_disk(tmp_path / "nlp")
    Path(folder).rename(tmp_path / "elsewhere")
    loaded = spacy.load(tmp_path / "nlp")
    assert [spans(doc) for doc in loaded.pipe(TEXTS)] == expected
    loaded.to_disk(tmp_path / "nlp")  # where its weights are
    assert spans(spacy.load(tmp_path / "nlp")(TEXTS[0])) == expected[0]
    assert [path.name for path in (tmp_path / "nlp").rglob("model*.*") if path.suffix != ".py"] == [
        "model.safetensors"
    ]


def test_entities_have_the_scores_of_the_predictor(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tagger", "TokenClassification", IOB)
    scores = [entity["score"] for entity in Predictor(folder)({"text": TEXTS[:1]})["found"][0]]
    doc = pipeline(folder)(TEXTS[0])
    assert [entity._.score for entity in doc.ents] == scores
    assert [span.text for span in doc.spans["modeling_star"]] == [entity.text for entity in doc.ents]
    assert doc.spans["modeling_star"].attrs["scores"] == scores
    assert [entity._.score for entity in type(doc)(doc.vocab).from_bytes(doc.to_bytes()).ents] == scores


def test_of_overlapping_spans_a_document_has_the_most_probable_ones(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tagger", "TokenClassification", IOB, use_crf=True)
    model = modeling_star.StarTransformerForTokenClassification.from_pretrained(folder)
    model.set_vocabulary(AutoTokenizer.from_pretrained(folder))
    model.classifier.weight.data.mul_(0.1)
    model.save_pretrained(folder)
    nlp = spacy.blank("en")
    nlp.add_pipe("modeling_star", config={"model": folder, "min_probability": 0.01})
    doc, ((_, found),) = nlp(TEXTS[0]), Predictor(folder, min_probability=0.01).predict(TEXTS[:1])
    assert [span.text for span in doc.spans["modeling_star"]] == [entity["text"] for entity in found]
    assert len(found) > len(doc.ents) > 0
    left = [entity for entity in found if (entity["label"], entity["start"], entity["end"]) not in spans(doc)]
    for entity in left:  # each shares a token with one that is at least as probable
        inside = [e for e in doc.ents if e.start_char < entity["end"] and entity["start"] < e.end_char]
        assert max(e._.score for e in inside) >= entity["score"]


def test_an_entity_within_a_token_gets_the_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = saved(tmp_path / "tagger", "TokenClassification", IOB)
    nlp = pipeline(folder)
    nlp.tokenizer = Tokenizer(nlp.vocab)  # cuts at blanks alone
    for doc, entities in zip(nlp.pipe(TEXTS), Predictor(folder)({"text": TEXTS})["found"], strict=True):
        for entity in entities:
            assert any(start <= entity["start"] and entity["end"] <= end for _, start, end in spans(doc))
    assert spans(nlp("London/Paris")) == [("LOC", 0, 12)]
    assert "1 of 2 entities" in caplog.text


def test_words_get_tags_and_texts_categories(tmp_path: Path) -> None:
    folder = saved(tmp_path / "words", "TokenClassification", ["NOUN", "VERB"])
    doc = pipeline(folder)(TEXTS[0])
    assert {token.tag_ for token in doc} == {"NOUN", "VERB"}
    assert not doc.ents
    folder = saved(tmp_path / "texts", "SequenceClassification", ["good", "bad"])
    docs = pipeline(folder).pipe([*TEXTS[:2], ""])
    for doc, found in zip(docs, [*Predictor(folder)({"text": TEXTS[:2]})["found"], []], strict=True):
        assert doc.cats == {each["label"]: each["score"] for each in found}
    one = saved(tmp_path / "number", "SequenceClassification", ["size"], problem_type="regression")
    assert pipeline(one)(TEXTS[0]).cats == {"value": Predictor(one)({"text": TEXTS[:1]})["found"][0][0]["value"]}


def test_models_for_other_tasks_are_refused(tmp_path: Path) -> None:
    pairs = saved(tmp_path / "pairs", "SequenceClassification", ["same", "other"], pair_mode="siamese")
    answers = saved(tmp_path / "answers", "QuestionAnswering", ["start", "end"])
    for folder in (pairs, answers):
        with pytest.raises(UserError, match=folder):
            pipeline(folder)(TEXTS[0])


@pytest.mark.parametrize("overwrite", [False, True])
def test_entities_of_earlier_components_remain_unless_overwritten(tmp_path: Path, overwrite: bool) -> None:
    folder = saved(tmp_path / "tagger", "TokenClassification", IOB)
    text = TEXTS[0]
    own = spans(pipeline(folder)(text))
    assert len(own) > 1
    nlp = spacy.blank("en")
    nlp.add_pipe("modeling_star", config={"model": folder, "overwrite": overwrite})
    doc = nlp.make_doc(text)
    first = doc.char_span(*own[0][1:], label="CUSTOM", span_id="known")
    doc.set_ents([first], blocked=[doc.char_span(*own[1][1:])])
    doc = nlp(doc)
    expected = [own[0] if overwrite else ("CUSTOM", *own[0][1:]), *own[2:]]  # a blocked token gets no entity
    assert spans(doc) == expected
    assert doc.ents[0].id_ == ("" if overwrite else "known")
