"""Explanations: attributions that add up, the words and weights of the attentions, the page."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import lexicon_of, tiny_model
from samples import some_terms, with_vectors, word_tokenizer

from modeling_star.commands import explain as command
from modeling_star.inference.explain import COMPLETENESS, as_html, explain
from modeling_star.inference.prediction import Predictor
from modeling_star.training.build import STAR_PLUS


TOKENIZER = word_tokenizer("a fine film begin ##s slow")
TEXT = "a fine film begins slow"


def saved(folder: Path, stem: str, ending: str, **options: Any) -> Predictor:
    """A predictor of a tiny random model."""
    shape = {"vocab_size": len(TOKENIZER), "id2label": {0: "O", 1: "B-X", 2: "I-X"}, "num_labels": 3}
    shape["label2id"] = {"O": 0, "B-X": 1, "I-X": 2}
    model = tiny_model(stem, ending, **shape, **options)
    if ending == "ForTokenClassification":
        with torch.no_grad():
            model.classifier.bias[1] += 3  # there are entities
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return Predictor(folder)


@pytest.mark.parametrize(
    ("stem", "ending", "options"),
    [
        ("StarTransformer", "ForSequenceClassification", STAR_PLUS),
        ("StarTransformer", "ForTokenClassification", {"use_crf": True, "tokenizer": TOKENIZER}),
        ("BiLstm", "ForSequenceClassification", {}),
    ],
)
def test_attributions_add_up_and_other_tokens_have_none(
    stem: str, ending: str, options: dict[str, Any], tmp_path: Path
) -> None:
    predictor = saved(tmp_path, stem, ending, **options)
    explanation = explain(predictor, TEXT)
    assert explanation.tokens == ["[CLS]", "a", "fine", "film", "begin", "s", "slow", "[SEP]"]
    assert explanation.attributions
    for each in explanation.attributions:
        assert abs(sum(each.values) - each.difference) <= COMPLETENESS
        assert each.values[0] == each.values[-1] == 0
        assert max(map(abs, each.values)) > 0
    if ending == "ForSequenceClassification":
        # The difference is that of the logit to a text of unknown words.
        inputs = TOKENIZER(TEXT, return_tensors="pt")
        unknown = inputs["input_ids"].clone()
        unknown[0, 1:-1] = TOKENIZER.unk_token_id
        with torch.no_grad():
            logits = [predictor.model(input_ids=ids).logits[0] for ids in (inputs["input_ids"], unknown)]
        label = predictor.model.config.label2id[explanation.attributions[0].label]
        assert explanation.attributions[0].difference == pytest.approx(float((logits[0] - logits[1])[label]), abs=1e-4)
        assert label == int(logits[0].argmax())
    assert [layer.shape for layer in explanation.relay] == (
        [] if stem == "BiLstm" else [(8,)] * len(explanation.relay)
    )


@pytest.mark.parametrize("fields", [{"char_features": True, "tokenizer": TOKENIZER}, {"word_vector_size": 2}])
def test_attributions_contain_what_characters_and_vectors_of_words_add(fields: dict[str, Any], tmp_path: Path) -> None:
    predictor = saved(tmp_path, "StarTransformer", "ForSequenceClassification", **fields)
    if "word_vector_size" in fields:
        pairs = [("fine", "film"), ("begin", "##s"), ("a", "fine"), ("##s", "slow")]
        words = lexicon_of(tuple(TOKENIZER.convert_tokens_to_ids(pair)) for pair in pairs)
        predictor.model.set_word_vectors(with_vectors(words, width=2))
    table = predictor.model.get_input_embeddings()
    with torch.no_grad():
        table.weight[:] = table.weight[TOKENIZER.unk_token_id]  # nothing else tells words apart
    [found] = explain(predictor, TEXT).attributions
    inputs = TOKENIZER(TEXT, return_tensors="pt")
    unknown = inputs["input_ids"].clone()
    unknown[0, 1:-1] = TOKENIZER.unk_token_id
    with torch.no_grad():
        logits = [predictor.model(input_ids=ids).logits[0] for ids in (inputs["input_ids"], unknown)]
    expected = float((logits[0] - logits[1])[predictor.model.config.label2id[found.label]])
    assert abs(expected) > 2 * COMPLETENESS
    assert found.difference == pytest.approx(expected, abs=1e-4)
    assert sum(found.values) == pytest.approx(expected, abs=COMPLETENESS)
    assert all(found.values[1:-1])


def test_a_vote_is_explained_by_both_of_its_models(tmp_path: Path) -> None:
    predictor = saved(tmp_path, "StarTransformer", "ForSequenceClassification")
    [alone] = explain(predictor, TEXT).attributions
    model, ids = predictor.model, TOKENIZER(TEXT, return_tensors="pt")["input_ids"]
    label = model.config.label2id[alone.label]
    terms = some_terms()
    terms.bias[label] += 3  # the class stays the best
    model.set_tfidf(terms)
    explanation = explain(predictor, TEXT)
    encoder, linear = explanation.attributions
    assert (encoder.part, linear.part) == ("encoder", "TF-IDF")
    assert encoder.label == linear.label == alone.label
    assert encoder.values == pytest.approx(alone.values, abs=1e-4)
    with torch.no_grad():
        logits = model.classifier.vote.logits(ids, None)
    assert sum(linear.values) == pytest.approx(float(logits[0, label] - terms.bias[label]), abs=1e-5)
    assert linear.difference == pytest.approx(sum(linear.values), abs=1e-5)
    assert max(map(abs, linear.values)) > 0
    # The prediction is the mean of what both say.
    [(_, [best, *_])] = predictor.predict([TEXT])
    assert best["score"] == pytest.approx((encoder.score + linear.score) / 2, abs=1e-4)
    page = as_html(explanation, "A vote")
    assert f"{alone.label}, TF-IDF" in page


def test_words_have_the_weights_that_their_tokens_give_them(tmp_path: Path) -> None:
    ids = TOKENIZER.convert_tokens_to_ids(["fine", "film", "begin"])
    lexicon = lexicon_of([tuple(ids[:2]), tuple(ids)])
    predictor = saved(tmp_path, "BigTransformer", "ForSequenceClassification", lexicon=lexicon)
    explanation = explain(predictor, TEXT)
    assert [word[:2] for word in explanation.words] == [(2, 2), (2, 3)]
    with torch.no_grad():
        output = predictor.model(**TOKENIZER(TEXT, return_tensors="pt"), output_attentions=True)
    roles = predictor.model.config.candidate_roles
    weights = [
        float(layer[0, :, 2 + k, roles.index(f"{k + 1} of 2")].mean()) for layer in output.attentions for k in (0, 1)
    ]
    assert explanation.words[0][2] == pytest.approx(np.mean(weights), abs=1e-6)


def test_the_page_is_whole_and_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "model", "StarTransformer", "ForSequenceClassification")
    page = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", ["explain", str(tmp_path / "model"), "a <b> film", "--output_file", str(page)])
    command.main()
    html = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in html
    assert "<b>" not in html.replace("<b class=for>", "")
    assert "http" not in html
    assert str(page) in capsys.readouterr().out
