"""Translation: tokens, the model, scores against sacrebleu, and the script on a tiny synthetic corpus."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_translation
import torch
from naive_bootstrap import naive_bootstrap, paired_bootstrap
from sacrebleu.metrics import BLEU, CHRF
from script_samples import read_rows
from synthetic.parallel import sentence_pair, write_parallel_corpus
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel
from translation import Translator, TranslatorConfig, new_model
from translation.scores import bleu_of_counts, chrf_of_counts, count_characters, count_ngrams, score_translations
from translation.tokens import train_tokenizer


ROOT = Path(__file__).resolve().parents[2]
SHAPES = ROOT / "experiments" / "translation" / "shapes"
PAIRS = [sentence_pair(37 * number) for number in range(150)]
TEXTS = [pair[side] for side in ("en", "zh") for pair in PAIRS]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(TEXTS, vocab_size=300)


@pytest.mark.parametrize(
    "text", [*TEXTS[::20], "  I  saw\ta book .", "我 saw 一本书", "Mary 玛丽", "saw“red”", "我。"]
)
def test_tokens_decode_to_the_text_they_came_from(text: str) -> None:
    trained = train_tokenizer([text, *TEXTS], min_frequency=1)
    ids = trained(text)["input_ids"]
    assert trained.decode(ids, skip_special_tokens=True) == " ".join(text.split())
    assert ids[-1] == trained.eos_token_id
    assert trained.unk_token_id not in ids


def test_chinese_is_read_by_characters_and_words_keep_the_space_before_them(tokenizer: Any) -> None:
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("玛丽 saw一本书")["input_ids"])
    assert tokens == ["玛", "丽", "▁saw", "一", "本", "书", "[SEP]"]


def model_of(system: str, tokenizer: Any) -> PreTrainedModel:
    """A model of a shape, with weights spread out so that beams do not tie."""
    torch.manual_seed(0)
    model = new_model(SHAPES / f"{system}-small.json", tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.double().eval()


@pytest.mark.parametrize("system", ["star-translation", "big-translation"])
def test_beams_give_the_same_alone_and_in_a_batch(system: str, tokenizer: Any) -> None:
    model = model_of(system, tokenizer)
    options = {"num_beams": 3, "max_new_tokens": 8, "min_new_tokens": 4, "length_penalty": 0.5}
    texts = [TEXTS[0], "I", TEXTS[3] + " " + TEXTS[5]]

    def written(*given: str) -> list[str]:
        inputs = tokenizer(list(given), padding=True, return_tensors="pt")
        return tokenizer.batch_decode(model.generate(**inputs, **options), skip_special_tokens=True)

    together = written(*texts)
    assert together == [text for given in texts for text in written(given)]
    assert len(set(together)) == 3


def test_one_table_serves_source_target_and_output_also_when_loaded(tokenizer: Any, tmp_path: Path) -> None:
    model = new_model(SHAPES / "star-translation-small.json", tokenizer).eval()
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(loaded, Translator)
    assert not any(info.values())
    for each in (model, loaded):
        table = each.get_input_embeddings().weight
        assert table is each.get_output_embeddings().weight
        assert table is each.decoder.get_input_embeddings().weight
    fixed = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert fixed == ["decoder.model.decoder.embed_positions.weight"]
    inputs = dict(tokenizer(TEXTS[:2], padding=True, return_tensors="pt"))
    with torch.no_grad():
        expected, actual = (each(**inputs, decoder_input_ids=inputs["input_ids"]).logits for each in (model, loaded))
    assert torch.equal(expected, actual)
    assert TranslatorConfig.from_pretrained(tmp_path).encoder.model_type == "star_transformer"


def test_the_shapes_of_one_table_have_the_same_budget(tokenizer: Any) -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=300)
    tokenizer.add_tokens([f"<{n}>" for n in range(8000 - len(tokenizer))])
    sizes = {path.stem: new_model(path, tokenizer).num_parameters() for path in SHAPES.iterdir()}
    assert max(sizes.values()) < 1.1 * min(sizes.values()), sizes


SCORES = {
    "bleu": (BLEU, lambda found, known: float(bleu_of_counts(count_ngrams(found, known).sum(0)))),
    "chrf": (CHRF, lambda found, known: float(chrf_of_counts(count_characters(found, known).sum(0)))),
}


def some_translations(count: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """References, and two systems that leave words out."""
    rng = np.random.default_rng(seed)
    references = [pair["en"] for pair in PAIRS[:count]]
    systems = [
        [" ".join(word for word in text.split() if rng.random() > rate) for text in references] for rate in (0.2, 0.4)
    ]
    return references, systems[0], systems[1]


@pytest.mark.parametrize(("metric", "added"), SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("size", [1, 3, 80])
def test_the_score_of_added_counts_is_sacrebleus(metric: Any, added: Callable[..., float], size: int) -> None:
    references, found, _ = some_translations(80, seed=2)
    for start in range(0, 80, size):
        part = slice(start, start + size)
        expected = metric().corpus_score(found[part], [references[part]]).score / 100
        assert added(found[part], references[part]) == pytest.approx(expected, abs=1e-12)
    known = ["a b c d e", "f g h i j k"]
    for found in (["", ""], ["", "a b c d e"], ["x", "y z"], ["a\u3000b", "f g h i j k l m"]):
        expected = metric().corpus_score(found, [known]).score / 100
        assert added(found, known) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "metric"), [(name, metric) for name, (metric, _) in SCORES.items()])
def test_the_bootstrap_is_that_of_sacrebleu_on_every_sample(name: str, metric: Any) -> None:
    references, first, second = some_translations(40, seed=3)

    def score(labels: list[str], texts: list[str]) -> float:
        return metric().corpus_score(texts, [labels]).score / 100

    found = paired_bootstrap(name, references, first, second, samples=20)
    assert found == pytest.approx(naive_bootstrap(score, references, [first], [second], samples=20))


@pytest.mark.parametrize("shape", ["marian", "star-translation", "big-translation"])
def test_a_run_leaves_a_translator_with_its_scores(shape: str, tmp_path: Path) -> None:
    write_parallel_corpus(tmp_path, sizes={"train": 48, "validation": 9, "test": 11})
    (tmp_path / "words.txt").write_text("昨天\n玛丽\n红色\n", encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text("vocab_size: 300\nmax_seq_length: 12\nnum_train_epochs: 2\n")
    command = [
        str(tmp_path / "recipe.yaml"),
        f"--config_name={SHAPES / shape}-small.json",
        f"--output_dir={tmp_path}/run",
    ]
    command += [f"--{split}_file={tmp_path / split}.jsonl" for split in ("train", "validation", "test")]
    command += [f"--lexicon={tmp_path / 'words.txt'}"] * (shape == "big-translation")
    command += ["--source_column=zh", "--target_column=en", "--use_cpu", "--disable_tqdm=true", "--report_to=none"]
    command += [f"--output_dir={tmp_path / 'run'}"]
    run_translation.run(*run_translation.parse(command))
    folder = tmp_path / "run"
    rows, results = read_rows(folder / "predictions_test.jsonl"), json.loads((folder / "all_results.json").read_text())
    given = [row["translation"] for row in read_rows(tmp_path / "test.jsonl")]
    assert [(row["source"], row["label"]) for row in rows] == [(pair["zh"], pair["en"]) for pair in given]
    scores = score_translations([row["predicted"] for row in rows], [row["label"] for row in rows])
    assert {name: results[f"test_{name}"] for name in scores} == pytest.approx(scores)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert (model.generation_config.num_beams, model.generation_config.max_length) == (4, 12)
    inputs = tokenizer(
        [row["source"] for row in rows], padding=True, truncation=True, max_length=12, return_tensors="pt"
    )
    written = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
    assert written == [row["predicted"] for row in rows]
