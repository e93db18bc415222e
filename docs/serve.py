"""
A saved model over HTTP.

    pip install fastapi uvicorn
    MODEL=outputs/tagger uvicorn --app-dir docs serve:app
    curl localhost:8000/predict -H "Content-Type: application/json" -d '{"texts": ["Maria Keller moved to Oslo ."]}'

The texts of a request are predicted in batches of similar length. Requests wait for each other, since one forward pass
uses all cores. For many short requests, start several processes: OMP_NUM_THREADS=1 uvicorn --workers 4
"""

import os
from threading import Lock
from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

from modeling_star.inference import Predictor


app = FastAPI(title="modeling-star")
predictor = Predictor(os.environ["MODEL"])
one_at_a_time = Lock()


class Texts(BaseModel):
    """The body of a request."""

    texts: list[Annotated[str, Field(max_length=100_000)]] = Field(min_length=1, max_length=1024)


# Not `async`: FastAPI runs it in a thread, and the server still answers other requests.
@app.post("/predict")
def predict(request: Texts) -> list[list[dict[str, Any]]]:
    """For each text its entities, or its classes with probabilities."""
    with one_at_a_time:
        return predictor({"text": request.texts})["found"]
