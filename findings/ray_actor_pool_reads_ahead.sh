#!/usr/bin/env bash
# Question: how far does ray.util.ActorPool.map read a generator while two actors work?
# Guess: two items ahead of what it has returned, so that inputs larger than memory can be streamed through it.
# Seen: all of it, before the first result: every item is in memory or in the object store. The Pool of
#   ray.util.multiprocessing, with the same two workers, reads as results are taken.
# Who meets it: whoever streams files through a pool of actors that hold a model.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check ray==2.60.0
cd "$folder"
RAY_USAGE_STATS_ENABLED=0 "$folder/venv/bin/python" - <<'END'
import ray
from ray.util import ActorPool
from ray.util.multiprocessing import Pool

ray.init("local", num_cpus=4, include_dashboard=False, logging_level="ERROR")
print("ray", ray.__version__)


@ray.remote(num_cpus=1)
class Doubler:
    def double(self, number):
        return 2 * number


def double(number):
    return 2 * number


def counted(read):
    for number in range(100):
        read.append(number)
        yield number


of_actors, of_pool = [], []
results = ActorPool([Doubler.remote() for _ in range(2)]).map(lambda actor, n: actor.double.remote(n), counted(of_actors))
assert next(results) == 0
print("read by ActorPool.map at its first result:", len(of_actors))
with Pool(2) as pool:
    assert next(iter(pool.imap(double, counted(of_pool), chunksize=1))) == 0
    print("read by Pool.imap at its first result:", len(of_pool))
assert len(of_actors) == 100
assert len(of_pool) < 10
END
