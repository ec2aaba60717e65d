"""Preview synonym replacement on a file.

python -m tasks.augment preview FILE [--method 1|2|3] [--synonyms-senses first|all] [--p P] [--seed N] [--data DIR]
"""

import sys

from minbert.training.cli import run
from tasks.augment.preview import main

if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
