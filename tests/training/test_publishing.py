"""Uploads to the Hub, and its errors."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.publish import hub as publishing
from modeling_star.publish.model_card import CardContent, write_model_card


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


@pytest.mark.parametrize(
    ("kind", "words"),
    [("http", "a/b.*hf auth login"), ("card", r"README\.md"), ("name", "a/b"), ("net", "a/b is unchanged")],
)
def test_errors_of_the_hub_are_user_errors(
    kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {
        "http": HfHubHTTPError("403 Forbidden", response=Mock()),
        "card": ValueError("license"),
        "name": HFValidationError("bad"),
        "net": ConnectionError("no route"),
    }
    monkeypatch.setattr(publishing.HfApi, "create_repo", Mock(side_effect=errors[kind]))
    with pytest.raises(UserError, match=words):
        publishing.upload(tmp_path, [], "a/b")


def test_a_tfidf_model_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "tfidf.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="TF-IDF"):
        publishing.files_to_share(tmp_path)


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
    for task in ("token-classification", "question-answering", "fill-mask", "translation"):
        write_model_card(folder, CardContent("star", "star_transformer", task, "reviews", {}, 1, "python run.py"))
        publishing.upload(folder, ["README.md"], "me/star")
        card = api.create_commit.call_args.args[1][0].path_or_fileobj.decode()
        assert '"me/star"' in card
        assert str(tmp_path) not in card
        assert '\\"' not in card  # of a name with quotation marks
