"""Python runs this at its start: conftest.py puts this folder on PYTHONPATH, so subprocesses are offline too."""

import offline

offline.guard()
