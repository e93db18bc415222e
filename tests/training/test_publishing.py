"""What reaches the Hub, and what it says back."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.training import hub as publishing
from modeling_star.training import trainer as fine_tuner


def test_branch_token_and_privacy_that_are_asked_for_reach_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(fine_tuner, "files_to_share", lambda folder: [])
    (tmp_path / "README.md").write_text("A card.", encoding="utf-8")
    asked = {"hub_model_id": "a/b", "hub_revision": "dev", "hub_token": "hf_x", "hub_private_repo": True}
    trainer = fine_tuner.FineTuner(torch.nn.Linear(1, 1), TrainingArguments(str(tmp_path), report_to="none", **asked))
    trainer.push_to_hub(commit_message="Done")
    told = [given[name] for name in ("repo", "revision", "token", "private", "commit_message")]
    assert told == ["a/b", "dev", "hf_x", True, "Done"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("http", "The Hub refused a/b .*hf auth login"),
        ("card", r"refuses the metadata in README\.md"),
        ("name", "a/b is no name of a repository"),
        ("net", "cannot be reached .*nothing of a/b was changed"),
    ],
)
def test_what_the_hub_says_is_told_in_a_line(
    kind: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {
        "http": HfHubHTTPError("403 Forbidden", response=Mock()),
        "card": ValueError("license"),
        "name": HFValidationError("bad"),
        "net": ConnectionError("no route"),
    }
    monkeypatch.setattr(publishing.HfApi, "create_repo", Mock(side_effect=errors[kind]))
    with pytest.raises(UserError, match=told):
        publishing.upload(tmp_path, [], "a/b")


def test_a_model_that_only_this_package_reads_is_told(tmp_path: Path) -> None:
    (tmp_path / "arguments.json").write_text('{"model_type": "tfidf"}', encoding="utf-8")
    with pytest.raises(UserError, match="TF-IDF model, which only this package reads"):
        publishing.files_to_share(tmp_path)
