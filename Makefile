# The two commands: `make run` and `make test`. Each sets up what it needs in .venv.
VENV ?= .venv
PYTHON ?= python3
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# What `make run` needs is a small part of what the tests need, so the two are installed apart.
FOR_RUN := $(VENV)/.for-run
FOR_TEST := $(VENV)/.for-test

.PHONY: run test check docs format bench fuzz soak package-check licences clean
.DELETE_ON_ERROR:

run: $(FOR_RUN)
	$(VENV)/bin/python examples/spiral_hard.py --out runs/spiral_hard
	$(VENV)/bin/python examples/draw_widths.py runs/spiral_hard/seed-0/history.jsonl runs/spiral_hard/widths.svg
	@echo "Picture of the widths: runs/spiral_hard/widths.svg"
	$(VENV)/bin/python examples/digits_table.py runs/digits.csv
	$(VENV)/bin/awn fit runs/digits.csv --target digit --out runs/digits --overwrite
	@echo "Open the report, which begins with the score at every size: runs/digits/report.html"

test: $(FOR_TEST)
	$(VENV)/bin/python -m pytest -n auto

check: $(FOR_TEST)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mkdocs build --strict --quiet

docs: $(FOR_TEST)
	$(VENV)/bin/python docs/notebooks.py
	$(VENV)/bin/mkdocs build --strict
	@echo "The documentation: site/index.html"

format: $(FOR_TEST)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(FOR_TEST)
	$(VENV)/bin/awn bench

# Damaged and hostile files, 100,000 of them: results/fuzz.json.
fuzz: $(FOR_TEST)
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/fuzz.py

# Kills at random points, and widths that change at random: results/soak.json.
soak: $(FOR_TEST)
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/soak.py

# The distributions in empty environments, with each extra: results/package.json. ALSO=… names other interpreters.
package-check: $(FOR_TEST)
	$(VENV)/bin/python benchmarks/package_check.py --also $(ALSO)

# The licences of everything that is installed.
licences: $(FOR_TEST)
	$(VENV)/bin/python benchmarks/licences.py

$(FOR_RUN): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[tabular,examples]"
	@touch $@

$(FOR_TEST): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev]"
	@touch $(FOR_RUN) $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
