# The two commands: `make run` and `make test`. Both set up everything they need in .venv.
VENV ?= .venv
PYTHON ?= python3
READY := $(VENV)/.ready

.PHONY: run test check format bench clean
.DELETE_ON_ERROR:

run: $(READY)
	$(VENV)/bin/python examples/spiral_hard.py --out runs/spiral_hard
	$(VENV)/bin/python examples/draw_widths.py runs/spiral_hard/seed-0/history.jsonl runs/spiral_hard/widths.svg
	@echo "Picture of the widths: runs/spiral_hard/widths.svg"
	$(VENV)/bin/awn fit examples/tables/breast_cancer.csv --target diagnosis --out runs/breast_cancer --overwrite

test: $(READY)
	$(VENV)/bin/python -m pytest -n auto

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(READY)
	$(VENV)/bin/awn bench

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
