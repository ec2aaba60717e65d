"""A sentence encoder of sentence-transformers in a process and an environment of its own, for `encode_speed --peers`.

Its ONNX and OpenVINO backends need other versions of transformers than this project:

    python3 -m venv peers && peers/bin/pip install "sentence-transformers[onnx,openvino]"

    peers/bin/python benchmarks/peer.py BACKEND FOLDER LENGTH THREADS

It reads a JSON line for each call, {"texts": [...], "out": FILE or null}, writes the vectors to the NumPy file if there
is one, and answers with the seconds of the call.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BACKENDS = ("onnx", "onnx-int8", "openvino", "openvino-int8")


def load(backend: str, folder: str, scratch: str) -> Any:
    """The model on a backend; int8 is dynamic quantisation for ONNX, and that of the weights for OpenVINO."""
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    name: Any
    name, _, int8 = backend.partition("-")
    options = {"load_in_8bit": True} if name == "openvino" and int8 else {}
    model = SentenceTransformer(folder, device="cpu", backend=name, model_kwargs={"export": True, **options})
    if name == "onnx" and int8:
        vnni = "avx512_vnni" in Path("/proc/cpuinfo").read_text()
        kind: Any = "avx512_vnni" if vnni else "avx2"
        model.save_pretrained(scratch)
        export_dynamic_quantized_onnx_model(model, kind, scratch, file_suffix="int8")
        file = {"file_name": "onnx/model_int8.onnx"}
        model = SentenceTransformer(scratch, device="cpu", backend="onnx", model_kwargs=file)
    return model


def main() -> None:
    """Load the model, then answer calls until stdin ends."""
    backend, folder, length, threads = sys.argv[1:]
    import numpy as np
    import torch

    torch.set_num_threads(int(threads))
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print to stdout
    with tempfile.TemporaryDirectory() as scratch:
        model = load(backend, folder, scratch)
        model.max_seq_length = int(length)
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            begun = time.perf_counter()
            vectors = model.encode(call["texts"], show_progress_bar=False)
            seconds = time.perf_counter() - begun
            if call["out"]:
                np.save(call["out"], vectors)
            print(json.dumps({"seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
