"""Publishing a model and loading it by name, against a Hub on this machine."""

import subprocess
import sys
from pathlib import Path

from loopback_hub import LoopbackHub, run_client

import modeling_star


PUBLISHED = """
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

def tiny_tokenizer():
    words = {word: index for index, word in enumerate("[PAD] [UNK] we live in Kyoto".split())}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")

def logits(model, tokenizer):
    with torch.no_grad():
        inputs = tokenizer("we live in Kyoto", return_tensors="pt").to(model.device)  # a pipeline may have moved it
        return model.eval()(**inputs).logits.tolist()
"""

# The package is installed for the tests: a process that must do without it refuses to import it.
WITHOUT_PACKAGE = """
import sys
sys.modules["modeling_star"] = None
"""


def test_a_pushed_model_loads_by_name_and_revision_where_the_package_is_absent(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    pushed = run_client(
        hub,
        tmp_path,
        """
        from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification

        result = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            config = StarTransformerConfig(
                vocab_size=6, hidden_size=8, num_attention_heads=2, id2label={0: "O", 1: "city"},
                label2id={"O": 0, "city": 1})
            model = StarTransformerForTokenClassification(config)
            commit = model.push_to_hub("someone/star")
            tiny_tokenizer().push_to_hub("someone/star")
            result.append({"commit": commit.oid, "logits": logits(model, tiny_tokenizer())})
        """,
        needs=PUBLISHED,
        cache="author",
    )
    sources = {path.name for path in Path(modeling_star.__file__).parent.glob("*.py")}
    shipped = set(hub.files("someone/star"))
    assert shipped - sources == {
        ".gitattributes",
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert shipped & sources == {
        "attention.py",
        "candidate_kernels.py",
        "characters.py",
        "configuration_base.py",
        "configuration_encoder.py",
        "configuration_star.py",
        "crf.py",
        "derivatives.py",
        "embeddings.py",
        "evaluating.py",
        "heads.py",
        "kernels.py",
        "layers.py",
        "modeling_encoder.py",
        "modeling_star.py",
        "relay_kernels.py",
        "row_attention.py",
        "tokens.py",
        "vocabulary.py",
    }

    first_revision = hub.commits("someone/star")[-1 - 2].oid  # after the initial commit: model, tokenizer
    loaded = run_client(
        hub,
        tmp_path,
        f"""
        from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

        tokenizer = AutoTokenizer.from_pretrained("someone/star")
        load = AutoModelForTokenClassification.from_pretrained
        newest = load("someone/star", trust_remote_code=True)
        first = load("someone/star", trust_remote_code=True, revision="{first_revision}")
        tag = pipeline("token-classification", "someone/star", trust_remote_code=True)
        scores = [[entity["score"], entity["start"], entity["end"]] for entity in tag("we live in Kyoto")]
        same = pipeline("token-classification", newest, tokenizer=tokenizer)
        assert scores == [[entity["score"], entity["start"], entity["end"]] for entity in same("we live in Kyoto")]
        result = [logits(first, tokenizer), logits(newest, tokenizer)]
        """,
        needs=WITHOUT_PACKAGE + PUBLISHED,
        cache="reader",
    )
    assert loaded == [entry["logits"] for entry in pushed]


def test_embeddings_are_taken_from_the_revision_that_is_named(hub: LoopbackHub, tmp_path: Path) -> None:
    run_client(
        hub,
        tmp_path,
        """
        import torch
        from transformers import BertConfig, BertModel

        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        model = BertModel(BertConfig(vocab_size=6, **sizes))
        for number in (1.0, 2.0):
            torch.nn.init.constant_(model.embeddings.word_embeddings.weight, number)
            model.push_to_hub("someone/bert")
        result = None
        """,
        cache="author",
    )
    second, first, *_ = (commit.oid for commit in hub.commits("someone/bert"))
    found = run_client(
        hub,
        tmp_path,
        f"""
        from modeling_star import StarTransformerModel

        def of(mode, **options):
            sizes = {{"hidden_size": 8, "num_attention_heads": 2}}
            model = StarTransformerModel.from_embeddings("someone/bert", mode=mode, **sizes, **options)
            return model.get_input_embeddings().weight[2, 0].item()

        result = [[of(mode), of(mode, revision="{first}"), of(mode, revision="{second}")]
                  for mode in ("static", "contextual")]
        """,
    )
    assert found == [[2.0, 1.0, 2.0]] * 2


def test_a_folder_is_uploaded_without_its_checkpoints_and_the_card_names_the_repository(
    hub: LoopbackHub, tmp_path: Path
) -> None:
    run_client(
        hub,
        tmp_path,
        """
        from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification

        config = StarTransformerConfig(vocab_size=6, hidden_size=8, num_attention_heads=2)
        StarTransformerForTokenClassification(config).save_pretrained("run")
        tiny_tokenizer().save_pretrained("run")
        result = None
        """,
        needs=PUBLISHED,
        cache="author",
    )
    run = tmp_path / "run"
    refused = push(hub, run, "someone/star")
    assert refused.returncode == 1
    assert "has no README.md, the model card" in refused.stderr
    loading = 'pipeline("token-classification", model="{0}") AutoTokenizer.from_pretrained("{0}")'
    (run / "README.md").write_text(loading.format("run"), encoding="utf-8")
    (run / "training_args.bin").write_bytes(b"pickled")
    (run / "checkpoint-3").mkdir()
    (run / "checkpoint-3" / "model.safetensors").write_bytes(b"older")
    (run / "trainer_state.json").write_text('{"best_model_checkpoint": "/home/me"}', encoding="utf-8")
    (run / "runs").mkdir()
    (run / "runs" / "events.json").write_text("{}", encoding="utf-8")
    (run / ".hidden.json").write_text("{}", encoding="utf-8")
    (run / "predictions_test.jsonl").write_text('{"tokens": ["private"]}', encoding="utf-8")
    (run / "answers_test.json").write_text('{"1": "a span of a private text"}', encoding="utf-8")
    listed = push(hub, run, "someone/star", "--dry_run")
    assert listed.returncode == 0, listed.stderr
    assert "model.safetensors" in listed.stdout
    with_predictions = push(hub, run, "someone/star", "--dry_run", "--predictions").stdout
    for name in ("predictions_test.jsonl", "answers_test.json"):
        assert name not in listed.stdout
        assert name in with_predictions
    offline = push(hub, run, "someone/star", HF_HUB_OFFLINE="1")
    assert offline.returncode == 1
    assert offline.stderr.startswith("The Hub cannot be reached")
    done = push(hub, run, "someone/star")
    assert done.returncode == 0, done.stderr
    uploaded = hub.files("someone/star")
    kept = {path.name for path in run.iterdir() if path.is_file()} - {
        "training_args.bin",
        ".hidden.json",
        "trainer_state.json",
        "predictions_test.jsonl",
        "answers_test.json",
    }
    assert uploaded.keys() - {".gitattributes"} == kept
    assert uploaded["README.md"].decode() == loading.format("someone/star")
    assert uploaded["model.safetensors"] == (run / "model.safetensors").read_bytes()
    assert not hub.repositories["model", "someone/star"].private

    done = push(hub, run, "someone/own", "--private", "--message", "For us alone")
    assert done.returncode == 0, done.stderr
    assert hub.repositories["model", "someone/own"].private
    assert hub.commits("someone/own")[0].title == "For us alone"

    done = push(hub, run, "mine")
    assert done.returncode == 0, done.stderr
    assert hub.files("someone/mine")["README.md"].decode() == loading.format("someone/mine")
    run.rename(tmp_path / "seed-3")
    refused = push(hub, tmp_path, "someone/seeds")
    assert f"name one seed's folder, {tmp_path / 'seed-3'}" in refused.stderr


def push(hub: LoopbackHub, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """run_scripts/push_to_hub.py against the Hub of the tests."""
    script = Path(__file__).resolve().parents[2] / "run_scripts" / "push_to_hub.py"
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, env={**hub.environment("author"), **variables}, capture_output=True, text=True)
