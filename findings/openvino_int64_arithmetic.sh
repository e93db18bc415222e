#!/usr/bin/env bash
# Question: does OpenVINO's CPU plugin compute an ONNX graph over int64, such as a hash of token ids, in 64 bits?
# Guess: yes. ONNX declares the type, and OpenVINO names its result int64.
# Seen: it computes in 32 bits without a word. A product beyond 2^31 wraps, an input beyond it loses its upper half, even
#   where the graph only passes it on, and the result still calls itself int64. ONNX Runtime computes all of them right.
# Who meets it: whoever exports hashed features (n-grams, a lexicon, a Bloom embedding) and serves them by OpenVINO: the
#   buckets are other buckets than in training, and the scores are plausible and wrong.
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


def both(nodes, ids, **constants):
    """The output `y` of a graph over the int64 input `x`, by ONNX Runtime and by OpenVINO."""
    kept = [helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in constants.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    file = model.SerializeToString()
    array = np.array(ids, dtype=np.int64)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": array})
    core = openvino.Core()
    seen = core.compile_model(core.read_model(file), "CPU")([array])[0]
    print(*(node.op_type for node in nodes), ids, "ONNX Runtime", expected, "OpenVINO", seen, seen.dtype)
    assert seen.dtype == np.int64
    return expected.tolist(), seen.tolist()


bucket = [helper.make_node("Mul", ["x", "prime"], ["z"]), helper.make_node("Mod", ["z", "buckets"], ["y"])]
expected, seen = both(bucket, [3, 70_000], prime=1_000_003, buckets=1000)
assert expected == [9, 70_000 * 1_000_003 % 1000] and seen == [9, 256]

expected, seen = both([helper.make_node("Identity", ["x"], ["y"])], [2**40 + 7, 7])
assert expected == [2**40 + 7, 7] and seen == [7, 7]

# As long as every value stays below 2^24, both agree (beyond it: openvino_remainder_in_float32.sh).
expected, seen = both(bucket, [3, 70_000], prime=211, buckets=1000)
assert expected == seen
END
