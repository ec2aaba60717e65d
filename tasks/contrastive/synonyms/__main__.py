"""What the methods do to a file.

python -m tasks.contrastive.synonyms preview FILE [--method 1|2|3] [--p P] [--seed N] [--data DIR] [--limit N]
"""

import sys

from minbert.training.cli import run
from tasks.contrastive.synonyms.preview import main

if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
