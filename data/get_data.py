"""Fetch the real data sets, or check data files: `python -m tasks.data` from any folder.

python data/get_data.py course|nli|senteval|chinese|wordnet|all [--data DIR] [--year 2023]
python data/get_data.py check [--data DIR]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from minbert.train.cli import run
from tasks.data.__main__ import main

if __name__ == "__main__":
    run(main)
