SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
REC := .venv/bin/rec
RECIPE ?= conf/criteo_demo.yaml
SETTINGS :=
BENCH ?= bench/datasets.py bench/loader.py bench/etl.py

# make demo DATA=path/to/train.txt runs any Criteo file, cut at 80 % and 90 % of its lines.
ifdef DATA
RECIPE := conf/criteo_kaggle.yaml
# Any name of a file: a text of YAML within a word of the shell, $ and all. Each writes its ' in its own way.
DATA_YAML := '$(subst ','',$(value DATA))'
SETTINGS := --set 'source.path=$(subst ','\'',$(DATA_YAML))' --set root=lake/data
endif

.PHONY: help demo test test-slow bench lint wheel python jars gpu-jar horovod serve peers clean

help:
	@echo "make demo       raw click log to a served model, with a report (RECIPE=conf/criteo_tiny.yaml, DATA=train.txt)"
	@echo "make test       every contract in its small form"
	@echo "make test-slow  what needs minutes by nature; writes docs/slow.md"
	@echo "make bench      speed as ratios against peers (BENCH=bench/etl.py ARGS='--rows 10000000')"
	@echo "make lint       style, types and import rules"
	@echo "make wheel      dist/reclake-*.whl"

python jars gpu-jar horovod serve peers:
	@deploy/install.sh $@

jars: | python
gpu-jar: | jars
horovod serve peers: | python

# The features come first: the first ledger is on the screen before the Horovod build starts.
demo: | python jars
	@$(REC) etl '$(subst ','\'',$(RECIPE))' $(SETTINGS)
	@$(MAKE) --no-print-directory horovod serve
	@$(REC) run '$(subst ','\'',$(RECIPE))' $(SETTINGS)

test: | python jars gpu-jar horovod serve
	@$(PYTHON) -m pytest -m "not slow" -n 2 --dist loadgroup $(ARGS)

test-slow: | python jars gpu-jar horovod serve
	@$(PYTHON) tests/slow_report.py docs/slow.md $(ARGS)

bench: | python jars peers
	@for script in $(BENCH); do echo "== $$script"; $(PYTHON) $$script $(ARGS); done

lint: | python
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

wheel: | python
	@$(PYTHON) -m build --wheel --no-isolation

clean:
	rm -rf build dist lake models .venv .venv-serve jars .gradle
