# Every target makes what it needs: a fresh clone with Python >= 3.11, Java >= 17 and make is enough.
# PYTHON=/path/to/python chooses the interpreter; JAVA_HOME, if set, the Java; ARGS goes to pytest or the demo.

VENV ?= .venv
LOWEST ?= .venv-lowest
ARGS ?=
BENCH_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOWEST_STAMP := $(LOWEST)/.installed
# Dependency groups came with pip 25.1; Python 3.11 brings an older one.
PIP_WITH_GROUPS = --upgrade 'pip>=25.1'
EXTRAS = '.[connect,delta,demo,kafka,metrics,pipelines,postgres,registry]'
# The lowest confluent-kafka of `kafka` is too old for `registry`, whose tests are skipped there.
LOWEST_EXTRAS = '.[connect,delta,demo,kafka,metrics,pipelines,postgres]'
PIP_INSTALL = install --disable-pip-version-check --quiet

# Spark starts its Python workers with the `python3` of the PATH unless it is told which.
PYTHON_OF = PYSPARK_PYTHON=$(abspath $(1))/bin/python PYSPARK_DRIVER_PYTHON=$(abspath $(1))/bin/python

.DEFAULT_GOAL := help
.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP)  ## Install everything into .venv (the other targets do it when needed)

.PHONY: demo
demo: $(STAMP) java  ## Replay the flights of 2013 as a stream and watch final results leave
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m tidegate demo $(ARGS)

# Tests start many processes: with this set, each compiles the package again, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

# Tests without Spark run side by side, but for those that measure time: these run when nothing else does.
SIDE_BY_SIDE = -n logical --maxprocesses 8 --dist worksteal
SHORT = not alone and not full and not slow and not browser
ALONE = -m "alone and not full and not slow"
# pytest ends with 5 where ARGS leave none of a lane's tests.
OR_NONE = || [ $$? -eq 5 ]
BESIDE_LOG = $(VENV)/beside.log

# Those on the shared Spark take the longest, one after the other: the others leave them the processors that they want.
LAST = nice -n 10

.PHONY: test
test: $(STAMP) java  ## All tests, on Spark too (without those marked full or slow)
	@echo "Tests without the shared Spark run beside those on it; what they find follows ($(BESIDE_LOG))."
	@export $(call PYTHON_OF,$(VENV)); \
	  { $(LAST) $(BIN)/python -m pytest -q --durations=5 $(SIDE_BY_SIDE) -m "(not spark or apart) and $(SHORT)" $(ARGS) $(OR_NONE); } \
	  >$(BESIDE_LOG) 2>&1 & beside=$$!; \
	  $(BIN)/python -m pytest -v --durations=15 -m "spark and not apart and $(SHORT)" $(ARGS) $(OR_NONE); spark=$$?; \
	  wait $$beside; beside=$$?; cat $(BESIDE_LOG); [ $$spark -eq 0 ] && [ $$beside -eq 0 ]
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m pytest -v $(ALONE) $(ARGS) $(OR_NONE)

.PHONY: check
check: lint  ## No Java, some minutes: ruff, mypy, layers, tests of kernel and driver
	$(BIN)/python -m pytest -q $(SIDE_BY_SIDE) -m "not spark and $(SHORT)" $(ARGS) $(OR_NONE)
	$(BIN)/python -m pytest -q $(ALONE) $(ARGS) $(OR_NONE)

.PHONY: lint
lint: $(STAMP)  ## ruff, mypy and the layers alone
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Where time does not count, Spark compiles the programs of its queries, as it does for users (tests/spark/session.py).
COMPILED = TIDEGATE_COMPILED=1

.PHONY: test-spark
test-spark: $(STAMP) java  ## Every scenario on Spark, the long ones too
	$(COMPILED) $(call PYTHON_OF,$(VENV)) $(BIN)/python -m pytest -v --durations=15 -m "(spark or full or slow) and not kafka" $(ARGS)

.PHONY: test-lowest
test-lowest: $(LOWEST_STAMP) java  ## The tests on the lowest supported versions (pyspark 4.1.0)
	$(COMPILED) $(call PYTHON_OF,$(LOWEST)) $(LOWEST)/bin/python -m pytest -v -m "not full and not slow" $(ARGS)

SPARK ?= 4.0.2
OF_SPARK = .venv-spark-$(SPARK)

.PHONY: test-with-spark
test-with-spark: $(OF_SPARK)/.installed java  ## The tests on Spark with another pyspark (SPARK=4.0.2), as of a platform that brings its own
	$(COMPILED) $(call PYTHON_OF,$(OF_SPARK)) $(OF_SPARK)/bin/python -m pytest -v -m "spark and not full and not slow" $(ARGS)

SUITE ?= trixie

.PHONY: test-newest
test-newest:  ## The tests on a newer Debian with its Python and Java, made in .newest (SUITE=trixie or forky; needs root, debootstrap)
	tools/newest $(SUITE) $(ARGS)

CASES ?= 500

.PHONY: kafka-parity
kafka-parity: $(STAMP) java  ## CASES random cases against Kafka Streams itself (SEED=n from a seed, ARGS="--only joins"; needs mvn)
	PYTHONPATH=src:tests $(BIN)/python -m parity.compare --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: test-kafka
test-kafka: $(STAMP) java  ## Pipelines over a real Kafka broker, started for the tests on loopback (needs mvn)
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m pytest -v --durations=15 -m kafka tests/kafka $(ARGS)

.PHONY: test-browser
test-browser: $(STAMP)  ## The page of tidegate watch in Chromium, which apt-get install chromium brings
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "No Chromium is installed. Run: apt-get install chromium"; exit 1; }
	$(BIN)/python -m pytest -v -m browser $(ARGS)

.PHONY: test-cluster
test-cluster: $(STAMP) java  ## A pipeline and the demo on a standalone cluster started for the tests on loopback
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m pytest -v --durations=15 -m cluster tests/cluster $(ARGS)

KILLS ?= 50

.PHONY: test-crash
test-crash: $(STAMP) java  ## KILLS times kill -9 of each of two pipelines, every result once (SEED=n repeats a choice; ARGS="--pipeline join" for one)
	PYTHONPATH=src:tests $(call PYTHON_OF,$(VENV)) $(BIN)/python -m crash --kills $(KILLS) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: test-sinks
test-sinks: KILLS = 10
test-sinks: $(STAMP) java  ## KILLS times kill -9 of a pipeline into Delta tables and PostgreSQL (SEED=n), every row once
	@tools/require-postgres
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m pytest -v --durations=5 tests/spark/test_sinks.py tests/spark/test_sinks_page.py tests/spark/test_exactly_once.py $(ARGS)
	PYTHONPATH=src:tests $(call PYTHON_OF,$(VENV)) $(BIN)/python -m crash --pipeline sinks --kills $(KILLS) $(if $(SEED),--seed $(SEED))

.PHONY: simulate
simulate: $(STAMP)  ## CASES random queries on a simulated cluster whose tasks and drivers die (SEED=n from a seed; no Java)
	PYTHONPATH=src:tests $(BIN)/python -m simulation --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: test-random
test-random: $(STAMP)  ## CASES random topologies as a hostile user writes them, in the driver and in layouts (SEED=n; no Java)
	PYTHONPATH=src:tests $(BIN)/python -m hostile --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(ARGS)

EXAMPLES ?= 200

.PHONY: test-deep
test-deep: $(STAMP)  ## The properties with EXAMPLES new examples each, and every seed of random cases (no Java)
	HYPOTHESIS_PROFILE=deep TIDEGATE_EXAMPLES=$(EXAMPLES) TIDEGATE_FULL=1 \
	  $(BIN)/python -m pytest -q --durations=15 $(SIDE_BY_SIDE) -m "not spark and not alone and not slow and not browser" $(ARGS)

.PHONY: test-spark-random
test-spark-random: $(STAMP) java  ## CASES such topologies on Spark, several in a query (SEED=n from a seed)
	PYTHONPATH=src:tests $(call PYTHON_OF,$(VENV)) $(BIN)/python -m hostile.spark_main --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: test-kafka-random
test-kafka-random: ARGS = --kafka
test-kafka-random: test-spark-random  ## The same, and most streams are topics of a real Kafka broker (needs mvn)

SOAK_MINUTES ?= 60

.PHONY: soak
soak: $(STAMP) java  ## A live pipeline for SOAK_MINUTES, drawn to output/soak.png: memory, state, files and time stay flat
	PYTHONPATH=src:tests $(call PYTHON_OF,$(VENV)) $(BIN)/python -m soak --minutes $(SOAK_MINUTES) $(ARGS)

FUZZ_CASES ?= 1000000
GUIDED_RUNS ?= 200000

.PHONY: test-fuzz
test-fuzz: $(STAMP)  ## FUZZ_CASES damaged frames, damaged states and odd definitions, none of which may crash
	PYTHONPATH=src:tests $(BIN)/python -m fuzz --cases $(FUZZ_CASES) $(if $(SEED),--seed $(SEED)) $(ARGS)
	PYTHONPATH=src:tests $(BIN)/python -m fuzz.guided --runs $(GUIDED_RUNS) $(if $(SEED),--seed $(SEED))

.PHONY: docs
docs: $(STAMP)  ## Draw the pictures and write the tables of docs/ anew
	$(BIN)/python -m tools.pages

SITE_VENV ?= .venv-site

.PHONY: site
site: $(SITE_VENV)/.installed  ## The documentation as a site in build/site; a broken link or reference fails
	$(SITE_VENV)/bin/python -m tools.site

.PHONY: test-site
test-site: site  ## The built site in Chromium: every page opens, the search finds, contrast, phone width, no other host
	CHROMIUM="$$(tools/require-chromium)" PYTHONPATH=.:tests $(SITE_VENV)/bin/python -m pytest -q -p no:cacheprovider --noconftest tests/docs/in_browser.py $(ARGS)

.PHONY: changelog
changelog: $(STAMP)  ## What the next release would say (the fragments in changes/)
	$(BIN)/towncrier build --draft --version $(or $(VERSION),next)

.PHONY: package
package: $(STAMP)  ## Wheel and source archive in dist/, checked
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*

.PHONY: test-package
test-package: $(STAMP)  ## Wheel and source archive, installed into empty environments, where a topology runs
	$(BIN)/python -m pytest -v -m package $(ARGS)

.PHONY: bench
bench: $(STAMP) java  ## Measure against Spark (BENCH_ARGS="--only W3" for a part, "--smoke" for a trial, "--full")
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m benchmarks.suite --settings as-installed tuned $(BENCH_ARGS)

.PHONY: bench-growth
bench-growth: $(STAMP) java  ## Measure rows/s over batch size, keys, open windows and tasks
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m benchmarks.growth $(BENCH_ARGS)

.PHONY: bench-headers
bench-headers: $(STAMP)  ## Simulate a large cluster without Spark: seconds of a task and bytes over source partitions and tasks
	$(BIN)/python -m benchmarks.headers $(BENCH_ARGS)

.PHONY: bench-where
bench-where: $(STAMP) java  ## Measure where the time of a micro-batch goes, part by part, for each workload
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m benchmarks.where $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: $(STAMP) java  ## Measure against Flink, Kafka Streams and Python libraries, fetched by pip and mvn (BENCH_ARGS as for bench)
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m benchmarks.peers --settings as-installed tuned $(BENCH_ARGS)

.PHONY: bench-page
bench-page: $(STAMP)  ## Write what bench, bench-peers, bench-growth and bench-where measured into docs/benchmarks.md
	$(BIN)/python -m benchmarks.page

.PHONY: bench-spill
bench-spill: $(STAMP) java  ## Measure a buffer that spills: 20 M keys, time per batch and memory of each process
	$(call PYTHON_OF,$(VENV)) $(BIN)/python -m benchmarks.spill $(BENCH_ARGS)

.PHONY: java
java:
	@tools/require-java

.PHONY: clean
clean:  ## Remove environments, caches and outputs
	rm -rf $(VENV) $(LOWEST) $(SITE_VENV) .venv-spark-* .newest build dist output benchmarks/results benchmarks/peers/target spark-warehouse metastore_db derby.log artifacts
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(OF_SPARK)/.installed: pyproject.toml
	@tools/make-venv $(OF_SPARK)
	@echo "Installing into $(OF_SPARK), with pyspark $(SPARK) (some minutes)"
	@$(OF_SPARK)/bin/python -m pip $(PIP_INSTALL) $(PIP_WITH_GROUPS)
	@$(OF_SPARK)/bin/python -m pip $(PIP_INSTALL) --editable $(EXTRAS) --group dev
	@$(OF_SPARK)/bin/python -m pip $(PIP_INSTALL) --no-deps pyspark==$(SPARK)
	@touch $@

# The site needs neither Spark nor the package: references are read from the source.
$(SITE_VENV)/.installed: pyproject.toml
	@tools/make-venv $(SITE_VENV)
	@$(SITE_VENV)/bin/python -m pip $(PIP_INSTALL) $(PIP_WITH_GROUPS)
	@$(SITE_VENV)/bin/python -m pip $(PIP_INSTALL) --group site
	@touch $@

# The stamp is written last: an installation that was cut off is repeated.
$(STAMP): pyproject.toml
	@tools/make-venv $(VENV)
	@echo "Installing into $(VENV) (the first time this fetches Spark, about 450 MB: some minutes)"
	@$(BIN)/python -m pip $(PIP_INSTALL) $(PIP_WITH_GROUPS)
	@$(BIN)/python -m pip $(PIP_INSTALL) --editable $(EXTRAS) --group dev
	@touch $@

$(LOWEST_STAMP): pyproject.toml requirements/lowest.txt
	@tools/make-venv $(LOWEST)
	@echo "Installing the lowest supported versions into $(LOWEST) (some minutes)"
	@$(LOWEST)/bin/python -m pip $(PIP_INSTALL) $(PIP_WITH_GROUPS)
	@$(LOWEST)/bin/python -m pip $(PIP_INSTALL) --constraint requirements/lowest.txt --editable $(LOWEST_EXTRAS) --group dev
	@touch $@
