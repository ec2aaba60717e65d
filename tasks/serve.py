"""Try a finished run in a browser: what its heads predict for a sentence or two, and the cosine of two sentences.

python -m tasks.serve runs/multitask
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import UserError
from minbert.train import cli

if TYPE_CHECKING:  # at run time torch would delay `--help`
    from minbert.encoder import Encoder


def answers(encoder: "Encoder", predictor: Any, texts: list[str]) -> list[Any]:
    """Of one or two sentences: every head's class probabilities or score, then the cosine of the two vectors."""
    results: list[Any] = []
    for name, task in predictor.model.tasks.items() if predictor else ():
        inputs: Any = [texts] if task.num_texts == 2 else texts[:1]
        if task.num_texts > len(texts):
            results.append("needs two sentences")
        elif task.classes:
            results.append(dict(zip(task.classes, predictor.predict_proba(name, inputs)[0].tolist(), strict=True)))
        else:
            results.append(f"{predictor.predict(name, inputs)[0]:.2f}")
    first, *second = encoder.encode(list(texts), normalize_embeddings=True)
    return [*results, f"{float(first @ second[0]):.4f}" if second else "needs two sentences"]


def build(run: Path) -> Any:
    """The page of a finished run of either stage. Raises `UserError` if `run` is not one."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before the import: nothing leaves this machine
    try:
        import gradio
    except ImportError as error:
        raise UserError("Gradio is not installed; run `pip install gradio`") from error
    from minbert.encoder import Encoder
    from tasks import predict
    from tasks.runs import finished

    heads = "tasks" in finished(run)[0].get("all_settings", {})
    predictor, encoder = predict.load(run) if heads else None, Encoder.load(run / "encoder")

    def submit(first: str, second: str) -> list[Any]:
        texts = [text.strip() for text in (first, second) if text.strip()]
        if not texts:
            raise gradio.Error("Type a sentence.")
        return answers(encoder, predictor, texts)

    with gradio.Blocks(title=f"Try {run.name}", analytics_enabled=False) as page:
        gradio.Markdown(f"# Try {run.name}\nNothing that you type leaves this machine.")
        first = gradio.Textbox(label="Sentence", value="A warm, funny and engaging film.")
        second = gradio.Textbox(label="Second sentence, for pairs", value="The film is charming.")
        click = gradio.Button("Predict", variant="primary").click
        titles = [task.title for task in predictor.model.tasks.values()] if predictor else []
        with gradio.Row():
            outputs = [gradio.Label(label=title.capitalize()) for title in (*titles, "cosine")]
        gradio.on([click, first.submit, second.submit], submit, [first, second], outputs, concurrency_limit=1)
    return page


def main(arguments: list[str] | None = None) -> None:
    """Serve the page of a run on 127.0.0.1 until Ctrl-C."""
    parser = cli.Parser(prog="python -m tasks.serve", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run")
    parser.add_argument("--port", type=int, default=8017, metavar="N", help="on 127.0.0.1 (default: 8017)")
    options = parser.parse_args(arguments)
    page = build(options.run)
    try:
        page.launch(server_name="127.0.0.1", server_port=options.port, share=False)
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {options.port}: is in use, or is no port") from error


if __name__ == "__main__":
    cli.run(main)
