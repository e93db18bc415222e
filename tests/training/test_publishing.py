"""Model cards and uploads: measured numbers, code that runs, no secrets, no files of the user."""

import contextlib
import html
import io
import re
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    TrainingArguments,
)

from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import classes_report
from modeling_star.publish import hub as publishing
from modeling_star.publish.model_card import CardContent, usage_code, write_model_card
from modeling_star.publish.run_card import shown_command, title_of


CONTENT = CardContent(
    model_name="star-wnut17",
    model_type="star_transformer",
    task="token-classification",
    dataset_name="WNUT-17",
    dataset_id="wnut_17",
    results={"validation": {"f1": 0.41256, "accuracy": 0.9}, "test": {"f1": 0.39, "precision": float("nan")}},
    seed=42,
    command="python run_scripts/run_ner.py recipe.yaml --seed 42",
    hyperparameters={"learning_rate": 1e-3, "train_batch_size": 12345, "lr_scheduler": "linear|cosine"},
    language="en",
    examples=["Anna lives in Paris.", '我爱 "北京"'],
    label_list=["O", "B-PER", "I-PER"],
)


def written(folder: Path, content: CardContent) -> tuple[ModelCard, str]:
    path = write_model_card(folder, content)
    assert path == folder / "README.md"
    return ModelCard.load(path), path.read_text(encoding="utf-8")


def saved_model(folder: Path, labels: int, tagger: bool) -> Path:
    """A tiny untrained model with a tokenizer of ours."""
    tokenizer = train_tokenizer(["Anna lives in Paris."], min_frequency=1)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    config.num_labels = labels
    (BertForTokenClassification if tagger else BertForSequenceClassification)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run_usage(folder: Path, content: CardContent) -> str:
    """The output of the code under "Use"."""
    _, text = written(folder, content)
    code = re.search(r"## Use\n\n```python\n(.*?)\n```", text, re.DOTALL)
    assert code is not None
    script = folder / "usage.py"
    script.write_text(code[1], encoding="utf-8")
    output = io.StringIO()
    # The card does not name the folders of the machine.
    with contextlib.redirect_stdout(output), contextlib.chdir(folder.parent):
        runpy.run_path(str(script))
    script.unlink()
    return output.getvalue()


def test_metadata_carry_the_results_to_the_hub(tmp_path: Path) -> None:
    card, _ = written(tmp_path, CONTENT)
    data = card.data
    assert (data.license, data.pipeline_tag, data.language) == (None, "token-classification", ["en"])
    assert (data.library_name, data.datasets, data.metrics) == ("transformers", ["wnut_17"], ["f1", "accuracy"])
    assert data.widget == [{"text": text} for text in CONTENT.examples]
    found = {(result.dataset_split, result.metric_type): result.metric_value for result in data.eval_results}
    assert found == {("validation", "f1"): 0.41256, ("validation", "accuracy"): 0.9, ("test", "f1"): 0.39}
    assert {result.dataset_name for result in data.eval_results} == {"WNUT-17"}


def test_metadata_name_no_local_folder(tmp_path: Path) -> None:
    here = replace(CONTENT, base_model=str(tmp_path), dataset_id=str(tmp_path), dataset_name="微博")
    card, text = written(tmp_path, here)
    assert (card.data.base_model, card.data.datasets) == (None, None)
    assert {result.dataset_type for result in card.data.eval_results} == {"data"}
    assert f"fine-tuned from `{tmp_path.name}`" in text
    assert str(tmp_path.parent) not in text, "the folders of this machine"
    card, _ = written(tmp_path, replace(CONTENT, base_model="someone/bert-base"))
    assert card.data.base_model == "someone/bert-base"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("--hub-token=hf_B --hub_token hf_C --seed 3", "'--hub-token=***' --hub_token '***' --seed 3"),
        ("--push_to_hub_token x --max_tokens_per_batch 9", "--push_to_hub_token '***' --max_tokens_per_batch 9"),
        ("--config_overrides a=hf_0123456789,b=2", "--config_overrides 'a=***,b=2'"),
        ("--train_file https://ada:pw@host/a.csv", "--train_file 'https://***@host/a.csv'"),
        ("--train_file HOME/train.jsonl --output_dir=HOME/run", "--train_file train.jsonl --output_dir=run"),
        ("--train_file HERE/data/a.csv --test_file=data/b.csv", "--train_file data/a.csv --test_file=data/b.csv"),
        ("--seeds 1 2 --config_overrides a=HOME/x,b=2", "--seeds 1 2 --config_overrides a=x,b=2"),
    ],
)
@pytest.mark.parametrize("program", ["modeling-star tag", "HERE/run_scripts/run_ner.py"])
def test_the_command_of_a_card_has_no_secrets_and_no_folders_of_this_machine(
    program: str, typed: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    monkeypatch.chdir(tmp_path)
    words = typed.replace("HERE", str(tmp_path)).replace("HOME", str(tmp_path.parent / "home")).split()
    called = program.replace("HERE", str(tmp_path))
    name = program.replace("HERE/", "python ")
    assert shown_command([called, *words]) == f"{name} {shown}"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    launched = {"modeling-star tag": "-m modeling_star tag"}.get(program, "run_scripts/run_ner.py")
    assert shown_command([called, *words], 2) == f"accelerate launch --num_processes 2 {launched} {shown}"


def test_a_card_has_no_command_of_another_program_and_no_name_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = written(tmp_path, replace(CONTENT, command=shown_command(())))
    assert "```bash" not in text
    assert "command below" not in text
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert title_of(str(tmp_path / "ada" / "train.csv")) == "train.csv"
    assert title_of(str(tmp_path / "ada" / "reviews" / "train.csv")) == "reviews"


@pytest.mark.parametrize("name", ["O'Brien's", '上海 "模型"'])
def test_the_code_of_a_tagger_runs_and_slices_the_text(tmp_path: Path, name: str) -> None:
    folder = saved_model(tmp_path / name, 3, tagger=True)
    words = replace(CONTENT, aggregation="simple")
    lines = run_usage(folder, replace(words, label_list=()))
    assert "LABEL" in lines
    assert "Paris" in lines
    every = run_usage(folder, replace(words, label_list=["NOUN", "VERB", "X"])).splitlines()
    assert [line.split()[0] for line in every] == ["Anna", "lives", "in", "Paris", "."]


@pytest.mark.parametrize("labels", ["O B-x I-x", "O B-x M-x E-x S-x", "NOUN VERB X"])
def test_the_code_of_a_subword_tagger_prints_whole_words(tmp_path: Path, minilm_path: str, labels: str) -> None:
    """Only the first token of a word is labelled in training."""
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    names = labels.split()
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(tokenizer), id2label=dict(enumerate(names)), **shape)
    BertForTokenClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    content = replace(CONTENT, label_list=names, examples=["Unbelievably electroencephalographic Goldsteinish"])
    code = usage_code(tmp_path, content)
    assert ("BestPathPipeline" in code) == (names != ["O", "B-x", "I-x"]), "which loads without this package"
    words = [word for line in run_usage(tmp_path, content).splitlines() for word in line.split()]
    assert {word for word in words if "." not in word} <= {*content.examples[0].split(), *names, "x"}


def test_the_code_of_a_classifier_runs_on_pairs_and_numbers(tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "model", 2, tagger=False)
    content = replace(
        CONTENT, task="text-classification", label_list=["no", "yes"], examples=[["Anna lives.", "Paris"]]
    )
    assert "'score'" in run_usage(folder, content)
    folder = saved_model(tmp_path / "regression", 1, tagger=False)
    card, text = written(folder, replace(content, regression=True))
    assert 'function_to_apply="none"' in text
    assert card.data.widget == [{"text": "Anna lives.", "text_pair": "Paris"}]
    assert "'score'" in run_usage(folder, replace(content, regression=True, examples=[]))


@pytest.mark.parametrize(
    "name", ["a|b", "<b onclick=x>", "A & B", "`id`", "*bold*", "_it_", "[x](http://y)", "~~a~~", "back\\slash", "$x$"]
)
def test_names_are_shown_literally(tmp_path: Path, name: str) -> None:
    labels = ["plain", name]
    table = classes_report([0, 1, 1], [1, 1, 0], labels)
    content = replace(CONTENT, model_name=name, dataset_name=name, label_list=labels, tables={"Classes": table})
    scores = {"test": {"f1": 0.5}}
    content = replace(content, task="text-classification", results=scores, hyperparameters={"kind": name})
    _, text = written(tmp_path, content)
    body = re.sub(r"(?s)\A---.*?\n---\n|```.*?```", "", text)
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(body)
    shown = re.sub(r"<(?!b onclick).*?>", "\n", page)  # the names have to be texts, not tags
    assert [html.unescape(line) for line in shown.splitlines()].count(name) >= 5
    assert page.count("<table>") == 4
    for tag in ("<b", "<em>", "<s>", 'href="http://y"'):
        assert tag not in page


def test_branch_token_and_privacy_reach_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Api:
        def __init__(self, token: str | None) -> None:
            given["token"] = token

        def create_repo(self, repo: str, **options: Any) -> Any:
            given.update(options)
            return SimpleNamespace(repo_id=repo)

        def create_commit(self, repo: str, operations: Any, **options: Any) -> None:
            given.update(options, repo=repo)

    monkeypatch.setattr(publishing, "HfApi", Api)
    monkeypatch.setattr(publishing, "files_to_share", lambda folder, examples: [])
    (tmp_path / "README.md").write_text("A card.", encoding="utf-8")
    options = {"hub_model_id": "a/b", "hub_revision": "dev", "hub_token": "hf_x", "hub_private_repo": True}
    publishing.upload_run(TrainingArguments(str(tmp_path), report_to="none", **options))
    names = ("repo", "revision", "token", "private", "commit_message")
    assert [given[name] for name in names] == ["a/b", "dev", "hf_x", True, "End of training"]


def test_stray_files_and_links_are_not_uploaded(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "secret.md"
    elsewhere.touch()
    of_model = ["README.md", "config.json", "model.safetensors"]
    of_version_02 = ["classes_test.md"]
    inside = ["code/modeling_star.py", "code/pairs.py", "report/classes_test.md"]
    expected = [*sorted([*of_model, *of_version_02]), *inside]
    names = [
        *expected,
        "notes.txt",
        "patients.csv",
        "train.jsonl",
        "recipe.yaml",
        "arguments.json",
        "checkpoint-2/a.md",
        "nightly.py",
        "code/notes.txt",
        "code/nightly.py",
        "report/trainer_state.json",
    ]
    for name in names:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("{}", encoding="utf-8")
    (run / "config.json").write_text('{"auto_map": {"AutoModel": "code/modeling_star.Model"}}', encoding="utf-8")
    (run / "code" / "modeling_star.py").write_text("from .pairs import join\n", encoding="utf-8")
    for folder in (run, run / "report"):
        (folder / "classes_validation.md").symlink_to(elsewhere)
    assert publishing.files_to_share(run) == expected
    for module in ("code/lost", "../beside", "code/link"):
        (run / "config.json").write_text(f'{{"auto_map": {{"AutoModel": "{module}.Model"}}}}', encoding="utf-8")
        (tmp_path / "beside.py").touch()
        (run / "code" / "link.py").unlink(missing_ok=True)
        (run / "code" / "link.py").symlink_to(elsewhere)
        with pytest.raises(UserError, match=r"lost\.py|beside\.py|link\.py"):
            publishing.files_to_share(run)
    (run / "config.json").write_text('{"auto_map": null}', encoding="utf-8")
    assert publishing.files_to_share(run) == [name for name in expected if not name.startswith("code/")]
    (run / "config.json").write_text('{"auto_map": {"AutoModel": "code/modeling_star.Model"}}', encoding="utf-8")
    (run / "report" / "predictions_test.jsonl").touch()
    assert publishing.files_to_share(run, predictions=True) == [*expected, "report/predictions_test.jsonl"]
    (run / "README.md").write_text("---\ntags: [a]\nwidget:\n- text: Patient X.\n---\nA card.\n", encoding="utf-8")
    with pytest.raises(UserError, match="--examples"):
        publishing.files_to_share(run)
    assert publishing.files_to_share(run, examples=True) == expected
    (run / "README.md").unlink()
    (run / "README.md").symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"README\.md"):
        publishing.files_to_share(run)


@pytest.mark.parametrize("name", ["star", 'my "star"'])
def test_an_uploaded_card_names_the_repository_and_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, api = tmp_path / name, Mock()
    api.create_repo.return_value = SimpleNamespace(repo_id="me/star")
    monkeypatch.setattr(publishing, "HfApi", Mock(return_value=api))
    for task in ("token-classification", "question-answering", "fill-mask"):
        write_model_card(folder, CardContent("star", "star_transformer", task, "reviews", {}, 1, "python run.py"))
        publishing.upload(folder, ["README.md"], "me/star")
        card = api.create_commit.call_args.args[1][0].path_or_fileobj.decode()
        assert '"me/star"' in card
        assert str(tmp_path) not in card
        assert '\\"' not in card  # of a name with quotation marks
