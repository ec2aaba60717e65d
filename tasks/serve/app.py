"""The page's server: three questions in JSON, and the files of the page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.responses import FileResponse
from pydantic import BaseModel, StringConstraints
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles

from minbert.files import distinct_names
from tasks.serve.answers import Answers

_HERE = Path(__file__).parent
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]


class Sentence(BaseModel):
    """One sentence."""

    text: Text


class Pair(BaseModel):
    """Two sentences."""

    first: Text
    second: Text


class Ranking(BaseModel):
    """A sentence, and those that are ranked by their similarity to it."""

    query: Text
    texts: list[Text]


def build(folders: Sequence[Path]) -> FastAPI:
    """The application over some run folders. Raises `UserError` if one is not a finished run."""
    runs = [Answers.load(folder, name) for folder, name in zip(folders, distinct_names(folders), strict=True)]
    app = FastAPI(openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])  # no page from elsewhere

    # async, so that one question is answered after the other: the models are not made for several threads
    @app.post("/sentence")
    async def sentence(asked: Sentence) -> list[dict[str, Any]]:
        return [run.about([asked.text]) for run in runs]

    @app.post("/pair")
    async def pair(asked: Pair) -> list[dict[str, Any]]:
        return [run.about([asked.first, asked.second]) for run in runs]

    @app.post("/rank")
    async def rank(asked: Ranking) -> list[dict[str, Any]]:
        return [run.rank(asked.query, asked.texts) for run in runs]

    @app.get("/report.css")
    async def style() -> FileResponse:
        return FileResponse(_HERE.parent / "report" / "style.css")

    app.mount("/", StaticFiles(directory=_HERE / "page", html=True))
    return app
