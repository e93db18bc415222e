#!/usr/bin/env bash
# Question: OpenVINO's CPU plugin computes int64 graphs in 32 bits. Is a graph whose values all fit into 31 bits computed
#   right, such as a rolling hash below a prime whose square is below 2^31?
# Guess: yes. Integers of 32 bits are enough for every value.
# Seen: sums and products are exact, but remainders, quotients and comparisons are computed in float32, which has 24
#   bits: x % 46337 is wrong for 98 % of the x between 2^24 and 2^31, x == x + 1 is true for 97 %, and 93 % of quotients
#   just below a multiple are wrong. The results call themselves int64. Below 2^24 all of them are right.
# Who meets it: whoever keeps hashed features, bit masks, timestamps or row numbers within int32 for such runtimes: the
#   numbers are near the right ones, and none of the operations is refused.
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


def differing(operation, result, x, y):
    """For how many of the numbers `x` (int64) and `y` OpenVINO's result of one operation differs from the exact one."""
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in "xy"]
    kind = TensorProto.BOOL if result == np.bool_ else TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node(operation, ["x", "y"], ["z"])], "graph", values,
        [helper.make_tensor_value_info("z", kind, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    file, inputs = model.SerializeToString(), {"x": x, "y": y}
    exact = {"Add": np.add, "Mul": np.multiply, "Mod": np.mod, "Div": np.floor_divide, "Equal": np.equal}[operation](x, y)
    (expected,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, inputs)
    assert (expected == exact).all()
    core = openvino.Core()
    seen = core.compile_model(core.read_model(file), "CPU")(inputs)["z"]
    assert seen.dtype == result
    return int((seen != exact).sum())


random = np.random.default_rng(0)
prime = np.full(1000, 46_337, dtype=np.int64)
large, small = random.integers(2**24, 2**31 - 1, 1000), random.integers(0, 2**24 - 1, 1000)
counts = {
    "Add": differing("Add", np.int64, large - prime, prime),
    "Mul": differing("Mul", np.int64, large // prime, prime),
    "Mod": differing("Mod", np.int64, large, prime),
    "Div": differing("Div", np.int64, large // prime * prime - 1, prime),
    "Equal": differing("Equal", np.bool_, large - 1, large),
}
print("wrong of 1000, numbers from 2^24 to 2^31:", counts)
assert counts["Add"] == counts["Mul"] == 0
assert min(counts["Mod"], counts["Equal"]) > 400 and counts["Div"] > 100
counts = {
    "Mod": differing("Mod", np.int64, small, prime),
    "Div": differing("Div", np.int64, small // prime * prime + prime - 1, prime),
    "Equal": differing("Equal", np.bool_, small, small + 1),
}
print("wrong of 1000, numbers below 2^24:", counts)
assert not any(counts.values())
END
