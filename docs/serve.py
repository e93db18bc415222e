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

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from modeling_star.inference import Predictor


MOST_BYTES = 8_000_000  # of a body
MOST_CHARACTERS = 300_000  # of all texts of a request
# A CRF takes a fifth of a millisecond for each token of the longest text of a batch; requests wait meanwhile.
MOST_TOKENS, MOST_OF_A_TEXT = 30_000, 2_000


class LimitBody:
    """Answers 413 to a larger body, whether it announces its length or not."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body up to the limit, and pass it on."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        is_larger, messages, size = announced.isdigit() and int(announced) > MOST_BYTES, [], 0
        while not is_larger:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            is_larger = size > MOST_BYTES
            if not message.get("more_body", False):
                break
        if is_larger:
            answer = JSONResponse({"detail": f"The body has more than {MOST_BYTES:,} bytes."}, 413)
            return await answer(scope, receive, send)

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        return await self.app(scope, replay, send)


app = FastAPI(title="modeling-star")
app.add_middleware(LimitBody)
predictor = Predictor(os.environ["MODEL"])
one_at_a_time = Lock()


@app.exception_handler(RequestValidationError)
async def without_input(request: Request, error: RequestValidationError) -> JSONResponse:
    """The errors without the texts, which pydantic repeats."""
    kept = [{name: each[name] for name in ("type", "loc", "msg")} for each in error.errors()]
    # A key of the request, which may be long or half a character, can be a part of `loc`.
    for each in kept:
        each["loc"] = [str(part).encode(errors="replace").decode()[:100] for part in each["loc"]]
    return JSONResponse({"detail": kept[:100]}, 422)


def encodable(text: str) -> str:
    """Refuse half a surrogate pair, which is no character: UnicodeEncodeError is a ValueError."""
    text.encode()
    return text


class Texts(BaseModel):
    """The body of a request."""

    texts: list[Annotated[str, Field(max_length=100_000), AfterValidator(encodable)]] = Field(
        min_length=1, max_length=1024
    )


# Not `async`: FastAPI runs it in a thread, and the server still answers other requests.
@app.post("/predict")
def predict(request: Texts) -> list[list[dict[str, Any]]]:
    """For each text its entities, or its classes with probabilities."""
    if sum(map(len, request.texts)) > MOST_CHARACTERS:
        raise HTTPException(413, f"The texts have more than {MOST_CHARACTERS:,} characters.")
    with one_at_a_time:
        tokens = [len(row) for row in predictor.tokenizer.backend_tokenizer.encode_batch(request.texts)]
        if sum(tokens) > MOST_TOKENS or max(tokens) > MOST_OF_A_TEXT:
            raise HTTPException(
                413, f"A request may have {MOST_TOKENS:,} tokens, and each of its texts {MOST_OF_A_TEXT:,}: divide it."
            )
        return predictor({"text": request.texts})["found"]
