"""The systems of the benchmark: ours, those of transformers by name, and parts of ours alone.

Axes: b batch  n columns  d width  T layers
"""

import math
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, BertConfig
from transformers.modeling_outputs import BaseModelOutput

from harness.benchmark_options import FROM_BERT, IN_INT8, IN_ONNX, SYSTEMS, Options, plain_name
from harness.benchmark_workloads import WORD_LENGTH, random_lexicon
from modeling_star.errors import UserError
from modeling_star.inference.cuda_graphs import cuda_graphs
from modeling_star.inference.export import export_onnx, quantize
from modeling_star.models.bert_weights import fields_from_encoder
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.word_matcher import WordMatcher


Batch = list[tuple[Tensor, Tensor | None]]  # sub-batches: ids [b, n], and their mask where there is padding

BLOCK = 1024  # tokens whose products are done at once in the lower bound
WINDOW = 128  # local attention of longformer and modernbert
# FNet has no mask; nystromformer's does not fit its landmarks in transformers 5.23 (beyond 64 columns).
UNMASKED = ("fnet", "nystromformer")
# Model type and fields of our encoders.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "star": ("star_transformer", {"position_embedding_type": "ring"}),
    "star-plus": ("star_transformer", {"position_embedding_type": "ring", "residual": True}),
    "big-window": ("big_transformer", {"local_connection": "window", "global_node": "first"}),
    "big": ("big_transformer", {"max_word_length": WORD_LENGTH}),
    "vanilla": ("vanilla_transformer", {"position_embedding_type": "sinusoidal"}),
    "disan": ("disan", {}),
    "bilstm": ("bilstm", {}),
}


def check_systems(options: Options) -> None:
    """
    Raises:
        UserError: a name is neither a system nor a model type of transformers.
    """
    for name in (*options.systems, *options.reference):
        plain = plain_name(name)
        if plain not in SYSTEMS and model_type_of(plain)[0] not in CONFIG_MAPPING:
            raise UserError(
                f"There is no system {name}: write one of {', '.join(SYSTEMS)}, or a model type of transformers such "
                f"as roberta, roberta-sdpa, roberta-eager; each also with {IN_ONNX} or {IN_INT8}."
            )


def model_type_of(name: str) -> tuple[str, str | None]:
    """ "bert-eager" is the model type "bert" with attention "eager"."""
    match = re.fullmatch(r"(.+)-(sdpa|eager)", name)
    return (match[1], match[2]) if match else (name, None)


class PartOfModel(nn.Module, ABC):
    """A part of a model: it returns no states and learns nothing."""

    @abstractmethod
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        """Its work in a forward pass over `ids` `[b, n]`; `mask` `[b, n]` is 0 at padding."""

    def step(self, ids: Tensor, mask: Tensor | None) -> None:
        """Its work in a training step: that of the forward pass, unless there is more."""
        self(ids, mask)


class Products(PartOfModel):
    """
    The Star-Transformer's matrix products alone, as many as it has for each token: (6 T - 2) d^2.

    The first layer has 4 d^2 (query, key and value, output); each other one also keys and values of the embeddings.
    In a training step a product is done three times: itself, and the gradients of its input and of its weight.
    """

    def __init__(self, options: Options):
        super().__init__()
        d = options.hidden_size
        widths = [1, 2, 1] + [1, 2, 2, 1] * (options.num_layers - 1)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(d * m, d) / math.sqrt(d)) for m in widths)
        self.embeddings = nn.Embedding(1, d)  # rows of one value: the products do not read what they multiply

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> None:
        """Work on as many rows as `ids` `[b, n]` has tokens that are no padding."""
        for rows in self._blocks(ids, mask):
            for weight in self.weights:
                nn.functional.linear(rows, weight)

    @torch.no_grad()
    def step(self, ids: Tensor, mask: Tensor | None) -> None:
        """The products of forward and backward, without an optimizer."""
        for rows in self._blocks(ids, mask):
            for weight in self.weights:
                gradient = nn.functional.linear(rows, weight)
                torch.mm(gradient, weight)
                torch.mm(gradient.t(), rows)

    def _blocks(self, ids: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        tokens = ids.numel() if mask is None else int(mask.sum())
        block = self.embeddings.weight.expand(min(BLOCK, tokens), -1).contiguous()
        for start in range(0, tokens, BLOCK):
            yield block[: tokens - start]


class Matching(PartOfModel):
    """The BiG-Transformer's search for words alone: once a pass, in training too."""

    def __init__(self, options: Options):
        super().__init__()
        lexicon = random_lexicon(options.lexicon_words, options.vocab_size, options.seed)
        self.matcher = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
        self.matcher.load(lexicon)

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Which words start at each token of `ids` `[b, n]` that is no padding: `[N, L]`."""
        layout = TokenLayout.from_mask(torch.ones_like(ids) if mask is None else mask, keep_padding=False)
        return self.matcher(layout.pack(ids), layout)


PARTS: dict[str, Callable[[Options], PartOfModel]] = {"products": Products, "matching": Matching}


def build(name: str, options: Options, longest: int) -> nn.Module:
    """
    A system with fresh weights that takes up to `longest` tokens.

    Raises:
        ValueError: the configuration of that kind of model does not allow the sizes.
    """
    torch.manual_seed(options.seed)
    if name in PARTS:
        return PARTS[name](options)
    if name in CONFIGS:
        model_type, special = CONFIGS[name]
        config = AutoConfig.for_model(model_type, **_sizes(options), **special)
        model = AutoModel.from_config(config)
        if name == "big":
            model.set_lexicon(random_lexicon(options.lexicon_words, options.vocab_size, options.seed))
        return model
    if name in FROM_BERT:
        bert = BertConfig(
            **_sizes(options), intermediate_size=4 * options.hidden_size, max_position_embeddings=longest
        )
        fields = fields_from_encoder(bert, None, FROM_BERT[name])
        return AutoModel.from_config(AutoConfig.for_model("big_transformer", **fields))
    model_type, attention = model_type_of(name)
    width = padded_width(name, longest)
    config = AutoConfig.for_model(
        model_type,
        **{
            **_sizes(options),
            # what some of them pad to, and RoBERTa's positions, which begin at 2
            "max_position_embeddings": width + WINDOW + 2,
            "intermediate_size": 4 * options.hidden_size,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            **_special_fields(model_type, options, width),
        },
    )
    sizes = (config.hidden_size, config.num_hidden_layers)
    if sizes != (options.hidden_size, options.num_layers):
        raise ValueError(f"{model_type} does not take the requested width and depth: it has {sizes}.")
    return AutoModel.from_config(config, **({"attn_implementation": attention} if attention else {}))


def _sizes(options: Options) -> dict[str, int]:
    return {
        "vocab_size": options.vocab_size,
        "hidden_size": options.hidden_size,
        "num_hidden_layers": options.num_layers,
        "num_attention_heads": options.num_heads,
    }


def _special_fields(model_type: str, options: Options, width: int) -> dict[str, Any]:
    """Fields that make a model type as wide and deep as the others, and its attention local where possible."""
    d, layers = options.hidden_size, options.num_layers
    if model_type == "longformer":
        return {"attention_window": WINDOW}
    if model_type == "nystromformer":
        # landmarks are means over equal segments of one fixed length
        return {"segment_means_seq_len": width, "num_landmarks": 64}
    if model_type == "modernbert":
        # gated: with two thirds of the width, as many weights as the others have
        return {
            "layer_types": ["sliding_attention"] * layers,
            "local_attention": WINDOW,
            "intermediate_size": 8 * d // 3,
        }
    if model_type == "reformer":
        # transformers' own rule for the buckets, which it applies to the first input it sees
        power = max(2 * (width // 64), 2).bit_length() - 1
        return {
            "attn_layers": [("lsh", "local")[layer % 2] for layer in range(layers)],
            "attention_head_size": d // options.num_heads,
            "feed_forward_size": 4 * d,
            "axial_pos_embds": False,
            "is_decoder": False,
            "num_buckets": 2**power if power <= 7 else [2 ** (power // 2), 2 ** (power - power // 2)],
        }
    return {}


def padded_width(name: str, width: int) -> int:
    """Columns that a system needs for `width` tokens; nystromformer and reformer take multiples of 64."""
    return -(-width // 64) * 64 if name in ("nystromformer", "reformer") else width


class OnnxSession:
    """
    A model in ONNX Runtime, which needs neither PyTorch nor this package to run it.

    Args:
        model: in eval mode.
        masked: whether it takes an attention_mask.
        int8: its weights have 8 bits.

    Raises:
        ImportError: onnxscript or onnxruntime is not installed.
        UserError: torch cannot export it.
    """

    def __init__(self, model: Any, masked: bool, int8: bool):
        import onnxruntime

        self.masked = masked
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        # Otherwise its threads keep polling for work while the next system runs.
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            export_onnx(model, ["input_ids", "attention_mask"] if masked else ["input_ids"], path)
            if int8:
                quantize(path, path)
            self.session = onnxruntime.InferenceSession(path, settings)

    def __call__(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BaseModelOutput:
        """States `[b, n, d]` of ids `[b, n]`."""
        inputs = {"input_ids": input_ids.numpy()}
        if self.masked:
            inputs["attention_mask"] = (
                torch.ones_like(input_ids) if attention_mask is None else attention_mask
            ).numpy()
        return BaseModelOutput(torch.from_numpy(self.session.run(None, inputs)[0]))


class Subject:
    """
    A system on its device, ready for passes.

    Args:
        name: of `SYSTEMS`, also with -onnx behind it.
        options: how it runs.
        longest: tokens of the longest row.
    """

    def __init__(self, name: str, options: Options, longest: int):
        self.name, self.options, self.longest = plain_name(name), options, longest
        model = build(self.name, options, longest).to(options.device, getattr(torch, options.dtype))
        self.model = model.train(options.mode == "train")
        self.call: Callable[..., Any] = self.model
        if plain_name(name) != name:
            if isinstance(model, PartOfModel):
                raise ValueError("a part of a model is not run by ONNX Runtime.")
            self.call = OnnxSession(self.model, self.name not in UNMASKED, name.endswith(IN_INT8))
        elif options.compile and not isinstance(model, PartOfModel):
            self.call = torch.compile(self.model)
        elif options.graphs and not isinstance(model, PartOfModel):
            self.call = cuda_graphs(self.model)
        self.optimizer: torch.optim.Optimizer | None = None
        if options.mode == "train" and not isinstance(model, PartOfModel):
            try:
                self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
            except RuntimeError:
                self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def prepare(self, ids: list[list[Tensor]], rows: int) -> list[Batch]:
        """Batches in sub-batches of `rows` rows, each padded to its longest row, on the device."""
        return [[self._padded(batch[start : start + rows]) for start in range(0, len(batch), rows)] for batch in ids]

    def _padded(self, rows: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        longest = max(map(len, rows))
        # nystromformer is built for one width
        width = padded_width(self.name, self.longest if self.name == "nystromformer" else longest)
        ids = nn.functional.pad(pad_sequence(rows, batch_first=True), (0, width - longest)).to(self.options.device)
        mask = (ids != 0).long()
        return ids, None if all(len(row) == width for row in rows) else mask

    def run(self, batches: list[Batch]) -> None:
        """
        One pass over all batches. Training makes one step a batch, over the gradients of its sub-batches.

        Raises:
            Exception: whatever the system raises where it cannot take the shape.
        """
        for batch in batches:
            for ids, mask in batch:
                if self.options.mode == "forward":
                    with torch.no_grad():
                        self._states(ids, mask)
                elif isinstance(self.model, PartOfModel):
                    self.model.step(ids, mask)
                else:
                    # the sum of squares over a constant, so that bfloat16 can hold it
                    self._states(ids, mask).square().mean().backward()
            if self.optimizer is not None:
                self.optimizer.step()
                self.optimizer.zero_grad()
        if self.options.on_gpu:
            torch.cuda.synchronize(self.options.device)

    def _states(self, ids: Tensor, mask: Tensor | None) -> Any:
        if isinstance(self.model, PartOfModel):
            return self.call(ids, mask)
        masked = {} if mask is None or self.name in UNMASKED else {"attention_mask": mask}
        return self.call(input_ids=ids, **masked).last_hidden_state
