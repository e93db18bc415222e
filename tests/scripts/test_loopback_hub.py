"""The Hub of loopback_hub.py against the real client, which reads HF_ENDPOINT once and so runs in a fresh process."""

import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pytest
from loopback_hub import LoopbackHub, run_client
from loopback_repository import HubError


# A tagger and a tokenizer small enough to build in every script that needs them.
TINY = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

def tiny_model(seed):
    torch.manual_seed(seed)
    return BertForTokenClassification(BertConfig(
        vocab_size=6, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16, id2label={0: "O", 1: "city"},
    )).eval()

def tiny_tokenizer():
    words = {word: index for index, word in enumerate("[PAD] [UNK] we live in Kyoto".split())}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")

def logits(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer("we live in Kyoto", return_tensors="pt")).logits.tolist()
"""


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """Status and body of a request that the client would not make."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_files_small_large_and_empty_arrive_and_come_back(hub: LoopbackHub, tmp_path: Path) -> None:
    result = run_client(
        hub,
        tmp_path,
        """
        from pathlib import Path
        from huggingface_hub import HfApi, hf_hub_download, snapshot_download

        api = HfApi()
        assert api.whoami()["name"] == "someone"
        assert api.create_repo("star").repo_id == "someone/star"
        api.create_repo("star", exist_ok=True)
        folder = Path("upload")
        (folder / "deep").mkdir(parents=True)
        contents = {
            "config.json": b"{}", "empty.txt": b"", "\u6587\u5b57.txt": "\u661f".encode() * 400,
            "model.safetensors": bytes(70_000), "deep/unknown": b"\\xff\\x00binary",
        }
        for path, content in contents.items():
            (folder / path).write_bytes(content)
        first = api.upload_folder(repo_id="someone/star", folder_path=folder).oid
        # The same content again makes no commit, and a second deletes and adds.
        assert api.upload_folder(repo_id="someone/star", folder_path=folder).oid == first
        api.create_tag("someone/star", tag="v1")
        api.create_branch("someone/star", branch="try/this", revision="v1")
        api.upload_file(
            repo_id="someone/star", path_in_repo="config.json", path_or_fileobj=b"[]", revision="try/this")
        api.delete_folder("deep", "someone/star")

        snapshot = Path(snapshot_download("someone/star", revision=first))
        assert {path: (snapshot / path).read_bytes() for path in contents} == contents
        files = api.model_info("someone/star", files_metadata=True).siblings
        result = {
            "main": sorted(api.list_repo_files("someone/star")),
            "top": [entry.path for entry in api.list_repo_tree("someone/star", revision="v1", expand=True)],
            "large": sorted(info.path for info in api.get_paths_info("someone/star", list(contents), revision="v1")
                if info.lfs is not None),
            "sizes": {file.rfilename: file.size for file in files if file.lfs},
            "branch": Path(hf_hub_download("someone/star", "config.json", revision="try/this")).read_text(),
            "branches": [branch.name for branch in api.list_repo_refs("someone/star").branches],
            "titles": [commit.title for commit in api.list_repo_commits("someone/star")],
        }
        """,
    )
    kept = [".gitattributes", "config.json", "empty.txt", "model.safetensors", "文字.txt"]
    assert result == {
        "main": kept,
        "top": sorted([*kept, "deep"]),
        "large": ["deep/unknown", "model.safetensors"],
        "sizes": {"model.safetensors": 70_000},
        "branch": "[]",
        "branches": ["main", "try/this"],
        "titles": [commit.title for commit in hub.commits("someone/star")],
    }
    assert len(hub.commits("someone/star")) == 3
    assert hub.files("someone/star", "v1")["deep/unknown"] == b"\xff\x00binary"


def test_what_is_missing_or_forbidden_raises_the_clients_own_errors(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.publish("someone/star", {"config.json": b"{}"})
    result = run_client(
        hub,
        tmp_path,
        """
        from huggingface_hub import HfApi, hf_hub_download

        api = HfApi()
        api.create_repo("someone/hidden", private=True)
        head = api.model_info("someone/star").sha
        commit = dict(repo_id="someone/star", path_in_repo="a", path_or_fileobj=b"a")
        attempts = {
            "repository": lambda: hf_hub_download("someone/nothing", "config.json"),
            "revision": lambda: hf_hub_download("someone/star", "config.json", revision="nowhere"),
            "file": lambda: hf_hub_download("someone/star", "\u6587\u5b57.txt"),
            "folder": lambda: list(api.list_repo_tree("someone/star", "nothing")),
            "hidden": lambda: api.model_info("someone/hidden", token=False),
            "wrong token": lambda: api.upload_file(**commit, token="hf_wrong"),
            "no token": lambda: api.upload_file(**commit, token=False),
            "another's name": lambda: api.create_repo("another/star"),
            "overtaken": lambda: (api.upload_file(**commit), api.upload_file(**commit | {"path_or_fileobj": b"b"},
                parent_commit=head)),
            "card": lambda: api.upload_file(**commit | {
                "path_in_repo": "README.md", "path_or_fileobj": b"---\\ntags: [open\\n---\\n"}),
        }
        result = {}
        for name, attempt in attempts.items():
            try:
                attempt()
            except Exception as error:
                status = getattr(getattr(error, "response", None), "status_code", None)
                result[name] = [type(error).__name__, status]
        """,
    )
    assert result == {
        "repository": ["RepositoryNotFoundError", 404],
        "revision": ["RevisionNotFoundError", 404],
        "file": ["RemoteEntryNotFoundError", 404],
        "folder": ["RemoteEntryNotFoundError", 404],
        "hidden": ["RepositoryNotFoundError", 401],
        "wrong token": ["HfHubHTTPError", 401],
        "no token": ["HfHubHTTPError", 401],
        "another's name": ["HfHubHTTPError", 403],
        "overtaken": ["HfHubHTTPError", 412],
        "card": ["ValueError", None],
    }
    with pytest.raises(HubError, match="Repository not found"):
        hub.files("someone/nothing")


@pytest.mark.slow
def test_a_pushed_model_loads_by_name_with_identical_logits_at_each_revision(hub: LoopbackHub, tmp_path: Path) -> None:
    # One process for both sides: pushing leaves nothing in the cache, and importing transformers takes seconds.
    result = run_client(
        hub,
        tmp_path,
        """
        from huggingface_hub import list_repo_commits
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        tokenizer = tiny_tokenizer()
        pushed = []
        for seed in (1, 2):
            model = tiny_model(seed)
            model.push_to_hub("someone/tiny", commit_message=f"seed {seed}")
            tokenizer.push_to_hub("someone/tiny")
            model.config.push_to_hub("someone/tiny")
            pushed.append(logits(model, tokenizer))

        older = list_repo_commits("someone/tiny")[1].commit_id
        loaded = []
        for revision in (older, "main"):
            model = AutoModelForTokenClassification.from_pretrained("someone/tiny", revision=revision)
            tokenizer = AutoTokenizer.from_pretrained("someone/tiny", revision=revision)
            loaded.append(logits(model, tokenizer))
        result = {"older": older, "pushed": pushed, "loaded": loaded}
        """,
        needs=TINY,
    )
    assert result["loaded"] == result["pushed"]
    assert result["pushed"][0] != result["pushed"][1]
    # Tokenizer and configuration are the same both times, so that the client commits the tokenizer only once.
    commits = hub.commits("someone/tiny")
    assert [commit.title for commit in commits] == ["seed 2", "Upload tokenizer", "seed 1", "initial commit"]
    assert commits[1].oid == result["older"]
    names = {
        ".gitattributes",
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert set(hub.files("someone/tiny")) == set(hub.files("someone/tiny", result["older"])) == names


@pytest.mark.slow
def test_the_stock_trainer_uploads_a_repository_that_pipeline_can_use(hub: LoopbackHub, tmp_path: Path) -> None:
    result = run_client(
        hub,
        tmp_path,
        """
        from huggingface_hub import ModelCard, upload_file
        from transformers import Trainer, TrainingArguments, pipeline

        tokenizer = tiny_tokenizer()
        rows = [{**tokenizer("we live in Kyoto"), "labels": [0, 0, 0, 1]}] * 4
        arguments = TrainingArguments(
            "star", push_to_hub=True, num_train_epochs=1, save_strategy="epoch", use_cpu=True)
        trainer = Trainer(tiny_model(1), arguments, train_dataset=rows, processing_class=tokenizer)
        trainer.train()
        trainer.push_to_hub(tags="tiny")
        card = ModelCard.load("someone/star")
        card.data.pipeline_tag = "token-classification"
        upload_file(path_or_fileobj=str(card).encode(), path_in_repo="README.md", repo_id="someone/star")
        # No task is named: `pipeline` asks the Hub, which has it from the card.
        loaded = pipeline(model="someone/star")
        assert loaded.task == "token-classification"
        assert logits(loaded.model, loaded.tokenizer) == logits(trainer.model.eval(), tokenizer)
        result = [entity["word"] for entity in loaded("we live in Kyoto")]
        """,
        needs=TINY,
    )
    assert set(result) <= {"we", "live", "in", "Kyoto"}
    assert set(hub.files("someone/star")) == {
        ".gitattributes",
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training_args.bin",
    }


@pytest.mark.skipif(
    int(version("huggingface_hub").split(".")[0]) < 2, reason="older clients check a card on huggingface.co only"
)
def test_a_model_card_is_checked_and_pushed(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.publish("someone/star", {"config.json": b"{}"})
    result = run_client(
        hub,
        tmp_path,
        """
        from huggingface_hub import ModelCard, model_info

        card = ModelCard("---\\nlicense: apache-2.0\\ntags: [ner]\\n---\\n# Star\\n")
        card.push_to_hub("someone/star")
        assert ModelCard.load("someone/star").text == card.text
        info = model_info("someone/star")
        result = [info.card_data.license, info.tags]
        """,
    )
    assert result == ["apache-2.0", ["ner"]]


def test_load_dataset_reads_json_and_what_push_to_hub_wrote(hub: LoopbackHub, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    hub.publish(
        "someone/corpus", {"train.jsonl": b'{"n": 1}\n{"n": 2}\n', "test.jsonl": b'{"n": 3}\n'}, repo_type="dataset"
    )
    result = run_client(
        hub,
        tmp_path,
        """
        from datasets import load_dataset

        corpus = load_dataset("someone/corpus")
        corpus.push_to_hub("someone/copy")
        copy = load_dataset("someone/copy")
        result = [{split: data["n"][:] for split, data in read.items()} for read in (corpus, copy)]
        """,
    )
    assert result == [{"train": [1, 2], "test": [3]}] * 2
    assert hub.files("someone/copy", repo_type="dataset").keys() >= {"README.md"}


def test_part_of_a_file_can_be_read(hub: LoopbackHub) -> None:
    hub.publish("someone/star", {"model.safetensors": b"0123456789"})
    url = f"{hub.url}/someone/star/resolve/main/model.safetensors"
    assert get(url, Range="bytes=2-4") == (206, b"234")
    assert get(url, Range="bytes=7-") == (206, b"789")
    assert get(url, Range="bytes=-2") == (206, b"89")
    assert get(url, Range="bytes=10-")[0] == 416


def test_an_unknown_request_is_answered_with_501_and_recorded() -> None:
    with LoopbackHub() as hub:
        assert get(f"{hub.url}/api/models/someone/star/xet-write-token/main")[0] == 501
        assert get(f"{hub.url}/api/models/someone/star", method="DELETE")[0] == 501
        assert get(f"{hub.url}/api/models/someone/star")[0] == 404
    assert hub.unknown_requests == [
        "GET /api/models/someone/star/xet-write-token/main: no such route",
        "DELETE /api/models/someone/star: no such route",
    ]


def test_the_environment_hides_the_callers_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGINGFACE_HUB_CACHE", "https_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "1")
    with LoopbackHub() as hub:
        environment = hub.environment(PYTHONPATH="here")
        assert hub.environment("other")["HF_HOME"] != environment["HF_HOME"]
    assert environment["HF_ENDPOINT"] == hub.url
    assert environment["PYTHONPATH"] == "here"
    assert "PATH" in environment
    hidden = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGINGFACE_HUB_CACHE", "https_proxy", "HTTP_PROXY"}
    assert not hidden & environment.keys()
