"""
Predictions with Ray Data, on one machine or a cluster.

    pip install ".[ray]"
    python docs/predict_ray.py outputs/tagger entities.jsonl shard-1.jsonl shard-2.jsonl

Each worker loads the model once and predicts batches of rows; the output has the rows in the order of the input. On a
cluster (`RAY_ADDRESS`), model and files are in a folder that all machines share. For one machine, `modeling-star
predict` is enough: it uses all cores, and continues after a kill.
"""

import argparse
import os

import ray

from modeling_star.inference import Predictor
from modeling_star.inference.prediction_files import as_json, rounded


def main() -> None:
    """Predict the column `text` of jsonl files."""
    parser = argparse.ArgumentParser(description="Predict with Ray Data.")
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if os.path.exists(arguments.output):
        parser.error(f"{arguments.output} exists, and nothing is overwritten")

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    rows = ray.data.read_json([os.path.abspath(path) for path in arguments.files], lines=True)
    predicted = rows.map_batches(
        Predictor,
        fn_constructor_args=(os.path.abspath(arguments.model),),
        batch_size=4096,
        compute=ray.data.ActorPoolStrategy(size=arguments.workers),
        num_cpus=0.5,  # reading files needs a part of a core, also where each core has a worker
    )
    with open(f"{arguments.output}.tmp", "w", encoding="utf-8") as file:
        for row in predicted.iter_rows():
            file.write(as_json({**row, "found": rounded(row["found"])}) + "\n")
    os.replace(f"{arguments.output}.tmp", arguments.output)


if __name__ == "__main__":
    main()
