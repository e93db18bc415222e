#!/usr/bin/env bash
# Question: a call leaves out an input of the model, such as token_type_ids. What do ONNX Runtime and OpenVINO do?
# Guess: both raise an error that names the input, in every call.
# Seen: ONNX Runtime does. OpenVINO (CPU) takes the values of the last call that gave the input, for another text, and
#   spreads one row of them over a batch of two: no warning, and a result of the right shape. If no call has given the
#   input, it has no rows, and neither has the result for one text: its shape is (0, 3), again without an error.
# Who meets it: whoever pads texts to one length and gives token_type_ids for pairs only, or takes a tokenizer that has
#   none for a model that wants them: a score depends on the request before it, and a test with one request, which
#   sees the empty array, does not show this.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0
cd "$folder"
"$folder/venv/bin/python" - <<'END'
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper

print("openvino", openvino.__version__, "onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
shape = ["batch", 3]
graph = helper.make_graph(
    [helper.make_node("Add", ["input_ids", "token_type_ids"], ["sum"])],
    "graph",
    [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "token_type_ids")],
    [helper.make_tensor_value_info("sum", TensorProto.INT64, shape)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
onnx.checker.check_model(model, full_check=True)
file = model.SerializeToString()
session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
core = openvino.Core()
compiled = core.compile_model(core.read_model(file), "CPU")

one, two = np.array([[1, 2, 3]]), np.array([[1, 2, 3], [4, 5, 6]])
types = np.array([[0, 100, 100]])  # of another text
cases = [
    ("one text, no types", {"input_ids": one}),
    ("one text and its types", {"input_ids": one, "token_type_ids": types}),
    ("one text, no types", {"input_ids": one}),
    ("two texts, no types", {"input_ids": two}),
]
seen = []
for name, inputs in cases:
    try:
        expected = session.run(None, inputs)[0].tolist()
    except ValueError as error:
        assert "token_type_ids" not in inputs and "token_type_ids" in str(error)
        expected = error
    seen.append(compiled(inputs)["sum"])
    print(f"{name}: onnxruntime: {expected} openvino: {seen[-1].shape} {seen[-1].tolist()}")
assert seen[0].shape == (0, 3)
assert seen[1].tolist() == seen[2].tolist() == (one + types).tolist()
assert seen[3].tolist() == (two + types).tolist()
fresh = compiled.infer_new_request({"input_ids": one})["sum"]
print("one text, no types, infer_new_request:", fresh.shape)
assert fresh.shape == (0, 3)
END
