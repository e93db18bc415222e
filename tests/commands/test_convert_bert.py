"""A converted BERT is a saved model like any other: the scripts fine-tune, distil and pretrain it."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from script_runner import ScriptRunner
from script_samples import QUICK, files, read_rows, results_of
from transformers import AutoModel, AutoTokenizer, ModernBertConfig, ModernBertForMaskedLM

from modeling_star import BigTransformerModel
from modeling_star.errors import UserError
from modeling_star.inference.conversion import check_random_texts


@pytest.fixture(scope="module")
def converted(scripts: ScriptRunner, bert: Path) -> Path:
    """The folder of a converted BERT of one layer with the words of its tokenizer."""
    flags = ["--layers", "0", "--radius", "2", "--lexicon", "whole_word"]
    scripts.check("convert_bert.py", bert, "converted", *flags)
    return scripts.folder / "converted"


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_the_folder_holds_the_weights_and_the_tokenizer_of_the_bert(converted: Path, bert: Path) -> None:
    model, source = AutoModel.from_pretrained(converted), AutoModel.from_pretrained(bert)
    assert isinstance(model, BigTransformerModel)
    assert (model.config.window_radius, model.config.lexicon_kind) == (2, "whole_word")
    assert model.layers[0].output.weight.equal(source.encoder.layer[0].output.dense.weight)
    tokenizer, original = AutoTokenizer.from_pretrained(converted), AutoTokenizer.from_pretrained(bert)
    assert tokenizer("a b", "c").data == original("a b", "c").data
    assert tokenizer.cls_token_id == tokenizer("a")["input_ids"][0]
    assert "AutoModelForTokenClassification" in config_of(converted)["auto_map"]


def fine_tuned(bert: Path, folder: Path, head: str, **fields: Any) -> Path:
    """A BERT with a random head whose predictions vary."""
    model = getattr(transformers, f"Bert{head}").from_pretrained(bert, **fields)
    for weight in model.parameters():
        weight.data.mul_(4)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(bert).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("head", "data"),
    [
        ("ForSequenceClassification", "sentiment/validation.jsonl"),
        ("ForTokenClassification", "entities/validation.jsonl"),
        ("ForQuestionAnswering", "reading/validation.jsonl"),
        ("ForMaskedLM", None),
    ],
)
def test_the_head_is_kept_and_checked(
    head: str, data: str | None, scripts: ScriptRunner, bert: Path, corpora: Path, tmp_path: Path
) -> None:
    labels = {"id2label": {0: "O", 1: "B-x"}, "label2id": {"O": 0, "B-x": 1}}
    source = fine_tuned(bert, tmp_path / "bert", head, **labels)
    flags = [] if data is None else ["--check", corpora / data]
    lines = scripts.check("convert_bert.py", source, tmp_path / "out", *flags).out.splitlines()
    config = config_of(tmp_path / "out")
    assert config["architectures"] == [f"BigTransformer{head}"]
    assert (config["num_hidden_layers"], config["window_radius"]) == (1, 128)
    assert "states" in lines[0]
    assert "logits" in lines[0]
    assert (config["id2label"], config["label2id"]) == ({"0": "O", "1": "B-x"}, labels["label2id"])
    if data is not None:
        assert " 0 of " in lines[3]


def test_a_model_that_differs_from_the_encoder_is_an_error(bert: Path) -> None:
    encoder = AutoModel.from_pretrained(bert, add_pooling_layer=False)
    model = BigTransformerModel.from_encoder(encoder)
    assert "states" in check_random_texts("BERT", encoder.eval(), model, 64)
    model.layers[0].output.bias.data[3] += 0.1
    with pytest.raises(UserError, match="states"):
        check_random_texts("BERT", encoder, model, 64)


def test_a_modernbert_keeps_its_kind(scripts: ScriptRunner, bert: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bert)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2}
    ids = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
    ModernBertForMaskedLM(ModernBertConfig(vocab_size=len(tokenizer), **sizes, **ids)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    scripts.check("convert_bert.py", tmp_path, tmp_path / "out", "--radius", "9")
    config = config_of(tmp_path / "out")
    assert (config["architectures"], config["global_radius"]) == (["WindowModernBertForMaskedLM"], 9)
    assert config["num_hidden_layers"] == 4
    done = scripts.run("convert_bert.py", tmp_path, tmp_path / "no", "--lexicon", "whole_word")
    assert done.code == 1
    assert "--lexicon" in done.error.splitlines()[-1]
    done = scripts.run("convert_bert.py", tmp_path, tmp_path / "no", "--radius", "0")
    assert "--radius 0" in done.error.splitlines()[-1]
    done = scripts.run("convert_bert.py", tmp_path, tmp_path / "out")
    assert (done.code, "--output_dir" in done.error) == (1, False)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--layers 0 3", "--layers 0 3"),
        ("--radius 0", "--radius 0"),
        ("--max_positions 0", "--max_positions 0"),
        ("--positions interpolated", "--max_positions 8192"),
    ],
)
def test_what_cannot_be_converted_is_one_line(flags: str, named: str, scripts: ScriptRunner, bert: Path) -> None:
    done = scripts.run("convert_bert.py", bert, "nothing", *flags.split())
    assert done.code == 1
    assert named in done.error.splitlines()[-1]


@pytest.mark.parametrize(
    ("script", "data"),
    [
        ("run_glue.py", "sentiment"),
        pytest.param("run_glue.py", "pairs", marks=pytest.mark.slow),
        pytest.param("run_ner.py", "entities", marks=pytest.mark.slow),
    ],
)
def test_scripts_fine_tune_it(scripts: ScriptRunner, converted: Path, corpora: Path, script: str, data: str) -> None:
    flags = [f"--model_name_or_path={converted}", f"--output_dir=tuned-{data}"]
    scripts.check(script, *files(corpora / data), *QUICK, *flags)
    folder = scripts.folder / f"tuned-{data}"
    assert results_of(folder)["train_samples"] > 0
    assert (config_of(folder)["model_type"], config_of(folder)["global_node"]) == ("big_transformer", "first")


def test_it_is_pretrained_further(scripts: ScriptRunner, converted: Path, corpora: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(row["text"] for row in read_rows(corpora / "sentiment" / "train.jsonl")))
    flags = [f"--model_name_or_path={converted}", f"--train_file={texts}", f"--validation_file={texts}"]
    scripts.check("run_mlm.py", *flags, "--max_steps=2", f"--output_dir={tmp_path / 'out'}", "--disable_tqdm=true")
    assert config_of(tmp_path / "out")["architectures"] == ["BigTransformerForMaskedLM"]
