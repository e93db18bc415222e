"""What a tagger has to beat, counted in seconds: the tag that each word has most often, a dictionary of entities."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from transformers import TrainingArguments

from ..data.entities import EntityGroups
from ..evaluation.metrics import count_examples, score_counts
from ..evaluation.reports import score_prefix
from ..models.tag_schemes import IGNORE_INDEX
from ..training.task import Task, is_scored


Words = Sequence[str]
Entity = tuple[str, int, int]  # type, first word, the one after the last


class FrequentTags:
    """The tag that a word has most often in training (the unigram tagger); of other words, the most frequent tag."""

    def __init__(self, sentences: Sequence[Words], tags: Sequence[Words]) -> None:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, own in zip(sentences, tags, strict=True):
            for word, tag in zip(words, own, strict=True):
                counts[word][tag] += 1
        self.of_word = {word: of_word.most_common(1)[0][0] for word, of_word in counts.items()}
        self.of_others = sum(counts.values(), Counter()).most_common(1)[0][0]

    def __call__(self, words: Words) -> list[str]:
        return [self.of_word.get(word, self.of_others) for word in words]


class EntityDictionary:
    """
    The entities of training, found again by longest match from left to right. A run of words is an entry if at least
    half of its occurrences in training are entities; its type is the most frequent one.
    """

    def __init__(self, sentences: Sequence[Words], entities: Sequence[Sequence[Entity]]) -> None:
        kinds: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for words, own in zip(sentences, entities, strict=True):
            for kind, first, end in own:
                kinds[tuple(words[first:end])][kind] += 1
        # From a first word to the lengths of the entries that begin with it, the longest first.
        self.lengths: dict[str, list[int]] = {}
        for first_word, length in sorted({(entry[0], len(entry)) for entry in kinds}, reverse=True):
            self.lengths.setdefault(first_word, []).append(length)
        runs = (run for words in sentences for first in range(len(words)) for run in self._runs(words, first))
        occurrences = Counter(run for run in runs if run in kinds)
        self.entries = {
            entry: counts.most_common(1)[0][0]
            for entry, counts in kinds.items()
            if 2 * counts.total() >= occurrences[entry]
        }

    def _runs(self, words: Words, first: int) -> Iterator[tuple[str, ...]]:
        """The runs of words at `first` that may be entries, the longest first."""
        for length in self.lengths.get(words[first], ()):
            if first + length <= len(words):
                yield tuple(words[first : first + length])

    def __call__(self, words: Words) -> list[str]:
        """The tags of the words, in IOB2 whatever the scheme of training: entities are compared."""
        tags = ["O"] * len(words)
        first = 0
        while first < len(words):
            entry = next((run for run in self._runs(words, first) if run in self.entries), None)
            if entry is not None:
                kind = self.entries[entry]
                tags[first : first + len(entry)] = [f"B-{kind}"] + [f"I-{kind}"] * (len(entry) - 1)
            first += 1 if entry is None else len(entry)
        return tags


def baseline_scores(task: Task, training: TrainingArguments) -> dict[str, float]:
    """
    The main score of the baselines on the splits that a run scores, such as `frequent_eval_f1`: of the tag that each
    word has most often ("frequent") and, where the labels are entities, of their dictionary ("dictionary").
    """
    data = task.data
    splits = [split for split in data.splits if is_scored(split, training) and data.is_labelled(split)]
    if not splits or "train" not in data.splits or not data.is_labelled("train"):
        return {}
    rows = {split: labelled_words(task, split) for split in ("train", *splits)}
    words, tags = rows.pop("train")
    if not any(tags):
        return {}
    baselines: dict[str, Callable[[Words], list[str]]] = {"frequent": FrequentTags(words, tags)}
    has_entities = task.metrics.task == "entities"
    if has_entities and "O" in data.label_list:  # otherwise every word belongs to an entry
        groups = EntityGroups(data.label_list)
        baselines["dictionary"] = EntityDictionary(words, [groups(groups.numbers(own)) for own in tags])
    metric = "entity_f1" if has_entities else "accuracy"
    scores: dict[str, float] = {}
    for split, (sentences, expected) in rows.items():
        for kind, tagger in baselines.items():
            counts = count_examples(metric, expected, [tagger(sentence) for sentence in sentences])
            name = f"{kind}_{score_prefix(split)}_{task.metrics.metric_for_best_model}"
            scores[name] = score_counts(metric, counts)
    return scores


def labelled_words(task: Task, split: str) -> tuple[list[list[str]], list[list[str]]]:
    """The words of each sentence that have a tag, and their tags."""
    data = task.data
    names, rows = data.label_list, data.splits[split]
    pairs = [
        [(word, names[tag]) for word, tag in zip(words, tags, strict=True) if tag != IGNORE_INDEX]
        for words, tags in zip(rows[data.text_column][:], rows[data.label_column][:], strict=True)
    ]
    return [[word for word, _ in row] for row in pairs], [[tag for _, tag in row] for row in pairs]
