"""What run_ner.py, run_glue.py and run_qa.py refuse: one line that says what to write, and nothing is touched."""

import os
from pathlib import Path
from typing import Any

import pytest
from script_runner import ScriptRunner
from script_samples import QUICK, TINY, files, hashes, read_rows, write_rows, write_vectors

from modeling_star.errors import UserError
from modeling_star.training.cli_errors import as_user_error


def bad_rows(corpora: Path, change: dict[str, Any], row: int = 2) -> list[dict[str, Any]]:
    rows = read_rows(corpora)
    rows[row] = {**rows[row], **change}
    return rows


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """Files that no run can use."""
    folder = tmp_path_factory.mktemp("bad")
    entities, sentiment = corpora / "entities" / "train.jsonl", corpora / "sentiment" / "train.jsonl"
    (folder / "empty.jsonl").touch()
    write_rows(folder / "lengths.jsonl", bad_rows(entities, {"ner_tags": ["O", "O"]}))
    write_rows(folder / "kind.jsonl", [{"text": row["text"], "label": {"name": 1}} for row in read_rows(sentiment)])
    write_rows(folder / "mixed.jsonl", bad_rows(sentiment, {"label": 1}))
    (folder / "broken.jsonl").write_text('{"text": "fine", "label": "a"}\n{"text": "fine", "label"\n')
    vectors = write_vectors(folder / "vectors.txt", read_rows(entities)).read_text().splitlines()
    (folder / "broken.txt").write_text("\n".join([*vectors[:4], vectors[4] + " x", *vectors[5:]]))
    (folder / "width.txt").write_text("\n".join([*vectors[:6], vectors[6].rsplit(" ", 1)[0], *vectors[7:]]))
    answers = {"text": ["xyz"], "answer_start": [3]}
    write_rows(folder / "elsewhere.jsonl", bad_rows(corpora / "reading" / "train.jsonl", {"answers": answers}))
    answers = {"text": [], "answer_start": []}
    write_rows(folder / "unanswered.jsonl", bad_rows(corpora / "reading" / "train.jsonl", {"answers": answers}))
    parts_of_speech = [
        {**row, "ner_tags": ["X" if word.isalpha() else "PUNCT" for word in row["tokens"]]}
        for row in read_rows(entities)
    ]
    write_rows(folder / "pos.jsonl", parts_of_speech)
    (folder / "one.csv").write_text("text,label\n" + "a fine film,good\n" * 9)
    (folder / "three.csv").write_text("sentence1,sentence2,label\n" + "".join(f"a,b,{n % 3}\n" for n in range(30)))
    (folder / "wordless.csv").write_text("text,label\n" + "!?,good\n...,bad\n" * 9)
    (folder / "numpy.csv").write_text("tokens,ner_tags\n['Anna' 'went'],['B-PER' 'O']\n")
    (folder / "data").mkdir()
    (folder / "data" / "train.jsonl").write_text('{"text": "fine", "label": "a"}\n{"text": "fine", "label"\n')
    write_rows(folder / "outside.jsonl", [{"tokens": ["Oslo", "is"], "ner_tags": ["O", "O"]}] * 4)
    write_rows(folder / "strange.jsonl", bad_rows(entities, {"tokens": ["Oslo"], "ner_tags": ["B-XYZ"]}))
    return folder


NER, GLUE, QA = "run_ner.py", "run_glue.py", "run_qa.py"
TFIDF = "--model_type=tfidf --validation_file={sentiment}"
VECTORS = "--embeddings_mode=vectors --embeddings_from="
# What is wrong -> script, flags (with {bad}, {corpora}, {tagger}, {bert}), and what the message names.
BAD_INPUTS: dict[str, tuple[str, str, list[str]]] = {
    "missing file": (NER, "--train_file={bad}/none.jsonl", ["none.jsonl", "--train_file"]),
    "empty file": (NER, "--train_file={bad}/empty.jsonl", ["empty.jsonl", "is empty"]),
    "no data": (NER, "", ["--dataset_name", "--train_file"]),
    "no network": (GLUE, "--task_name=mrpc", ["nyu-mll/glue (mrpc)", "--train_file"]),
    "no json": (GLUE, "--train_file={bad}/broken.jsonl", ["broken.jsonl", "line 2"]),
    "missing column": (NER, "--train_file={entities} --label_column_name=tagz", ["tagz", "'tokens'", "'ner_tags'"]),
    "no label column": (GLUE, "--train_file={bad}/../{plain}", ["'text'", "--label_column_name"]),
    "unknown kind": (GLUE, "--train_file={bad}/kind.jsonl", ["train row 1", "name"]),
    "mixed labels": (GLUE, "--train_file={bad}/mixed.jsonl", ["row 1", "row 3", "(text)", "(a whole number)"]),
    "unequal lengths": (NER, "--train_file={bad}/lengths.jsonl", ["train row 3", "words", "2 tags"]),
    "vectors' width": (
        NER,
        "--train_file={entities} " + VECTORS + "{bad}/width.txt",
        ["width.txt, line 7", "8 numbers"],
    ),
    "broken vectors": (NER, "--train_file={entities} " + VECTORS + "{bad}/broken.txt", ["broken.txt, line 5"]),
    "vectors asked wider": (
        NER,
        "--train_file={entities} --config_overrides=embedding_size=9 " + VECTORS + "{bad}/vectors.txt",
        ["vectors.txt, line 1", "9 numbers"],
    ),
    "no vectors file": (NER, "--train_file={entities} " + VECTORS + "{bad}/none.txt", ["none.txt"]),
    "folder in use": (NER, "--train_file={entities} --output_dir={tagger}", ["nothing is overwritten", "resume"]),
    "folder is a file": (NER, "--train_file={entities} --output_dir={bad}/mixed.jsonl", ["--output_dir"]),
    "folder cannot be": (NER, "--train_file={entities} --output_dir={bad}/mixed.jsonl/x", ["--output_dir"]),
    "nothing to resume": (
        NER,
        "--train_file={entities} --output_dir={bad} --resume_from_checkpoint=last",
        ["no whole checkpoint"],
    ),
    "token ids outside": (
        NER,
        "--train_file={entities} --model_name_or_path={tagger} --tokenizer_name={bert}",
        ["token ids up to", "--tokenizer_name"],
    ),
    "vocabulary too small": (
        NER,
        "--train_file={entities} --config_overrides=vocab_size=20",
        ["token ids up to", "embeds 20 tokens"],
    ),
    "heads": (
        GLUE,
        "--train_file={sentiment} --config_overrides=hidden_size=30,num_attention_heads=4 "
        "--model_type=vanilla_transformer",
        ["hidden_size=30", "num_attention_heads=4"],
    ),
    "heads x head_dim": (
        GLUE,
        "--train_file={sentiment} --config_overrides=hidden_size=30,num_attention_heads=4",
        ["hidden_size=30", "num_attention_heads=4", "head_dim"],
    ),
    "unknown field": (
        GLUE,
        "--train_file={sentiment} --config_overrides=hiden_size=30",
        ["hiden_size", "hidden_size"],
    ),
    "unknown model type": (GLUE, "--train_file={sentiment} --model_type=stra", ["stra", "star_transformer"]),
    "no such model": (
        GLUE,
        "--train_file={sentiment} --model_name_or_path={bad}/none",
        ["--model_name_or_path", "none could not be loaded"],
    ),
    "no such embeddings": (
        GLUE,
        "--train_file={sentiment} --embeddings_from={bad}/none",
        ["none could not be loaded", "Name a model's folder"],
    ),
    "the words of vectors for pieces": (
        NER,
        "--train_file={entities} --vocabulary_from=vectors --embeddings_mode=vectors --embeddings_from={bad}/v.txt",
        ["--vocabulary_from vectors", "--tokenizer_kind word or character"],
    ),
    "no such word list": (
        GLUE,
        "--train_file={bad}/none.jsonl --model_type=big_transformer --lexicon={bad}/words.txt",
        ["--lexicon", "words.txt does not exist", "one word a line", "jieba or whole_word"],
    ),
    "no such metric": (GLUE, "--train_file={sentiment} --metric_for_best_model=f2", ["f2", "accuracy"]),
    "a label the model lacks": (
        NER,
        "--train_file={bad}/strange.jsonl --model_name_or_path={tagger}",
        ["B-XYZ", "--ignore_mismatched_sizes"],
    ),
    "weights": (NER, "--train_file={entities} --class_weights=1,2", ["2 numbers", "labels"]),
    "weights in a CRF": (
        NER,
        "--train_file={entities} --class_weights=balanced --config_overrides=use_crf=true",
        ["--class_weights", "not with use_crf"],
    ),
    "a CRF of texts": (GLUE, "--train_file={sentiment} --config_overrides=use_crf=true", ["use_crf", "run_ner.py"]),
    "a part of more than all": (
        GLUE,
        "--train_file={sentiment} --validation_file={sentiment} --validation_fraction=2",
        ["--validation_fraction 2", "between 0 and 1"],
    ),
    "constraints without a CRF": (
        NER,
        "--train_file={entities} --config_overrides=crf_constraints=iob2",
        ["crf_constraints='iob2'", "set use_crf=True"],
    ),
    "constraints on parts of speech": (
        NER,
        "--train_file={bad}/pos.jsonl --config_overrides=use_crf=true,crf_constraints=auto",
        ["entity labels", "'PUNCT'", "leave crf_constraints out"],
    ),
    "nothing to train on": (NER, "--test_file={entities} --do_train", ["no train split", "--train_file"]),
    "nothing trained to score": (
        NER,
        "--train_file={entities} --test_file={entities} --do_predict",
        ["--model_name_or_path FOLDER", "--do_train"],
    ),
    "a size that was saved": (
        NER,
        "--train_file={entities} --model_name_or_path={tagger} --config_overrides=hidden_size=32",
        ["--config_overrides hidden_size", "leave out"],
    ),
    "nothing to train a tokenizer on": (NER, "--test_file={entities}", ["--model_name_or_path FOLDER"]),
    "nothing to ask with": (QA, "--test_file={reading} --do_predict", ["--model_name_or_path FOLDER"]),
    "stride too large": (NER, "--train_file={entities} --max_seq_length=8 --stride=8", ["stride=8"]),
    "a seed twice": (NER, "--train_file={entities} --seeds 1 1", ["--seeds 1 1"]),
    "flags that do not fit": (
        NER,
        "--train_file={entities} --model_name_or_path={bert} --embeddings_from={bert}",
        ["--embeddings_name_or_path", "--model_name_or_path"],
    ),
    "an answer elsewhere": (
        QA,
        "--train_file={bad}/elsewhere.jsonl",
        ["train row 3", "'train-2'", "'xyz'", "at character 3"],
    ),
    "a question without an answer": (
        QA,
        "--train_file={bad}/unanswered.jsonl",
        ["'train-2'", "--version_2_with_negative"],
    ),
    "an empty file of questions": (QA, "--train_file={bad}/empty.jsonl", ["empty.jsonl", "is empty"]),
    "no context": (QA, "--train_file={sentiment}", ["'text'", "'label'", "--label_column_name"]),
    "a threshold of nothing": (
        QA,
        "--train_file={reading} --null_score_diff_threshold=1.5",
        ["--null_score_diff_threshold 1.5", "--version_2_with_negative"],
    ),
    "no such context": (QA, "--train_file={reading} --text_column_name=question,contxt", ["contxt", "'context'"]),
    "a question too long": (QA, "--train_file={reading} --max_seq_length=6", ["of the 6 tokens", "--max_seq_length"]),
    "no such score of answers": (QA, "--train_file={reading} --metric_for_best_model=accuracy", ["exact_match, f1"]),
    "classes of answers": (QA, "--train_file={reading} --class_weights=balanced", ["--class_weights"]),
    "TF-IDF of answers": (QA, "--train_file={reading} --model_type=tfidf", ["tfidf", "star_transformer"]),
    "one class": (GLUE, "--train_file={bad}/one.csv", ["Every label is 'good'", "--label_column_name"]),
    "one tag": (NER, "--train_file={bad}/outside.jsonl", ["Every label is 'O'"]),
    "an unknown task": (GLUE, "--train_file={sentiment} --task_name=sst-2", ["sst-2", 'Did you mean "sst2"']),
    "names of columns twice": (
        GLUE,
        "--train_file={bad}/one.csv --column_names label,text",
        ["one.csv names its columns", "leave --column_names away"],
    ),
    "arrays of numpy": (NER, "--train_file={bad}/numpy.csv", ["['Anna' 'went'", "map(list)"]),
    "a folder with a broken file": (GLUE, "--dataset_name={bad}/data", ["could not be read", "--train_file"]),
    "a configuration that is no JSON": (
        GLUE,
        "--train_file={sentiment} --config_name={bad}/one.csv",
        ["--config_name", "no JSON"],
    ),
    "no such configuration": (
        GLUE,
        "--train_file={sentiment} --config_name=none.json",
        ["none.json", "not exist"],
    ),
    "no predictions": (GLUE, "--train_file={sentiment} --prediction_loss_only", ["--prediction_loss_only"]),
    "pieces of words": (
        NER,
        "--train_file={entities} --model_type=big_transformer --lexicon=whole_word --tokenizer_kind=word",
        ["--tokenizer_kind wordpiece"],
    ),
    "no network to push to": (
        GLUE,
        "--train_file={sentiment} --push_to_hub --hub_model_id=me/star",
        ["offline"],
    ),
    "all that lies there is pushed": (
        GLUE,
        "--train_file={sentiment} --push_to_hub --hub_model_id=me/star --hub_strategy=every_save",
        ["--hub_strategy every_save", "--hub_strategy end"],
    ),
    "nothing trained is pushed": (
        GLUE,
        "--model_name_or_path={tagger} --test_file={sentiment} --do_predict --push_to_hub",
        ["--do_train", "push_to_hub.py"],
    ),
    "nothing trained has no new head": (
        NER,
        "--model_name_or_path={tagger} --test_file={entities} --do_predict --ignore_mismatched_sizes",
        ["--ignore_mismatched_sizes", "--train_file"],
    ),
    "TF-IDF is not pushed": (
        GLUE,
        "--train_file={sentiment} --push_to_hub --hub_model_id=me/tfidf " + TFIDF,
        ["tfidf", "--push_to_hub"],
    ),
    "F1 of three labels": (GLUE, "--train_file={bad}/three.csv --task_name=mrpc", ["F1 of two labels", "3 are in"]),
    "reported to what is not there": (
        GLUE,
        "--train_file={sentiment} --report_to=wandb",
        ["WandbCallback requires wandb"],
    ),
    "TF-IDF without a choice": (GLUE, "--train_file={bad}/one.csv " + TFIDF, ["'label'"]),
    "TF-IDF without words": (GLUE, "--train_file={bad}/wordless.csv " + TFIDF, ["no words in 'text'"]),
    "no best answers": (QA, "--train_file={reading} --n_best_size=0", ["--n_best_size 0", "at least 1"]),
    "a task of answers": (QA, "--train_file={reading} --task_name=squad", ["--task_name"]),
    "best and mean": (
        GLUE,
        "--train_file={sentiment} --early_stopping_patience=2 --average_checkpoints=3",
        ["--average_checkpoints 0"],
    ),
    "the best may not be saved": (
        GLUE,
        "--train_file={sentiment} --eval_strategy=steps --save_strategy=steps --eval_steps=3 --save_steps=6",
        ["--eval_steps 3 --save_steps 3"],
    ),
    "nothing to do": (
        GLUE,
        "--do_predict --train_file={sentiment} --validation_file={sentiment}",
        ["nothing to do", "--test_file with --do_predict"],
    ),
    "a mean of less than nothing": (GLUE, "--train_file={sentiment} --average_checkpoints=-1", ["-1", "0 or more"]),
    "seeds and push": (NER, "--train_file={entities} --seeds 1 2 --push_to_hub", ["--push_to_hub"]),
}


@pytest.mark.parametrize("what", BAD_INPUTS)
def test_bad_input_is_told_in_one_line_and_nothing_saved_is_touched(
    scripts: ScriptRunner, corpora: Path, bad: Path, tagger: Path, bert: Path, tmp_path: Path, what: str
) -> None:
    script, flags, named = BAD_INPUTS[what]
    places = {
        "bad": bad,
        "tagger": tagger,
        "bert": bert,
        "plain": os.path.relpath(corpora / "sentiment/plain.jsonl", bad.parent),
    }
    places |= {name: corpora / name / "train.jsonl" for name in ("entities", "sentiment", "reading")}
    given = flags.format(**places).split()
    output = [] if "--output_dir" in flags else [f"--output_dir={tmp_path}/run"]
    before = {folder: hashes(folder) for folder in (bad, tagger, bert)}
    done = scripts.run(script, *TINY, *QUICK, *given, *output)
    assert done.code == 1, done.out + done.error
    assert "Traceback" not in done.error, done.error
    (message,) = [line for line in done.error.splitlines() if line.startswith(f"{script}: ")]
    assert not [word for word in named if word not in message], message
    assert {folder: hashes(folder) for folder in before} == before
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_of_two_processes_one_tells_what_is_wrong(scripts: ScriptRunner, tagger: Path, corpora: Path) -> None:
    before = hashes(tagger)
    done = scripts.run("run_ner.py", *files(corpora / "entities"), f"--output_dir={tagger}", processes=2)
    assert done.code == 1
    assert done.error.count("nothing is overwritten") == 1
    assert "Traceback" not in done.error
    assert hashes(tagger) == before


def test_where_an_error_of_one_line_was_raised_is_told_on_request(scripts: ScriptRunner, corpora: Path) -> None:
    bad = [f"--train_file={corpora}/entities/train.jsonl", "--model_type=big_transformer", "--tokenizer_kind=word"]
    done = scripts.run("run_ner.py", *TINY, *QUICK, *bad, "--lexicon=whole_word", "--log_level=debug", "--seed=1")
    assert done.code == 1
    assert "Traceback" in done.error
    assert "read_lexicon" in done.error  # the function that refuses
    assert done.error.splitlines()[-1].startswith("run_ner.py: ")


def test_a_mistake_of_ours_is_not_told_as_the_users() -> None:
    with pytest.raises(UserError, match="what the user wrote"), as_user_error():
        raise ValueError("what the user wrote")
    with pytest.raises(TypeError), as_user_error():
        len(None)  # type: ignore[arg-type]
