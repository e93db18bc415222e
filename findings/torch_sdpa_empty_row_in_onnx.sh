#!/usr/bin/env bash
# Question: a query may see no key at all (a padded position of a window, an empty sequence). Is its output the same in
#   torch and in the ONNX file that torch exports?
# Guess: yes, zeros: torch returns zeros for such a row of a boolean mask, and the exporter is tested against torch.
# Seen: torch returns zeros, by each of its CPU kernels. The exported file returns the mean of *all* values, those that
#   the mask hides included: it adds a large finite number to the scores in place of -inf. Rows with a key agree.
# Who meets it: whoever exports a model with local attention and pools or reads padded positions: they are no longer
#   empty, and what a sequence outputs there depends on tokens that it must not see.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0 onnx==1.23.2 \
    onnxscript==0.7.2 onnxruntime==1.32.0
cd "$folder"
"$folder/venv/bin/python" - 2>/dev/null <<'END'
import onnxruntime
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    def forward(self, states, mask):
        return scaled_dot_product_attention(states, states, states, attn_mask=mask)


torch.manual_seed(0)
states = torch.randn(1, 1, 3, 4)
mask = torch.tensor([[[[1, 1, 0], [0, 0, 0], [1, 0, 1]]]], dtype=torch.bool)
model = Attention().eval()
for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
    with sdpa_kernel(backend):
        expected = model(states, mask)[0, 0]
    assert expected[1].tolist() == [0, 0, 0, 0]

torch.onnx.export(model, (states, mask), "attention.onnx", dynamo=True, verbose=False)
session = onnxruntime.InferenceSession("attention.onnx", providers=["CPUExecutionProvider"])
feed = {item.name: tensor.numpy() for item, tensor in zip(session.get_inputs(), (states, mask), strict=True)}
seen = torch.from_numpy(session.run(None, feed)[0])[0, 0]

print("torch", torch.__version__, "onnxruntime", onnxruntime.__version__)
print("the row without a key: torch", expected[1].tolist(), "file", [round(x, 4) for x in seen[1].tolist()])
print("mean of all values:", [round(x, 4) for x in states.mean(2).flatten().tolist()])
torch.testing.assert_close(seen[[0, 2]], expected[[0, 2]])
torch.testing.assert_close(seen[1], states[0, 0].mean(0))
END
