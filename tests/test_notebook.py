"""Guards: the notebook runs from its first cell to its last, without its installation, and leaves the prediction files.

python -m pytest --import-mode=importlib tests/test_notebook.py -m notebook
"""

import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.notebook
def test_the_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "docs" / "colab.ipynb", as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "install" not in cell.metadata.get("tags", [])]
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source += f"\nfrom pathlib import Path\nLIMIT, MAX_STEPS, RUNS = 32, 2, {str(tmp_path / 'runs')!r}"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT / "docs")}}).execute()
    kinds = set[str]()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            kinds |= output.get("data", {}).keys()
            assert "error: " not in output.get("text", "")
    assert {"image/png", "text/html"} <= kinds
    names = zipfile.ZipFile(tmp_path / "runs" / "predictions.zip").namelist()
    assert len([name for name in names if name.endswith(".csv")]) == 6
