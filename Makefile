# Two commands set everything up by themselves: `make run` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RECIPE ?= recipes/bert.yaml
# Test files that run at once; most tests wait for stages, which are processes of their own.
TEST_WORKERS ?= 3

# Container images set this. Each of the tests' processes, and they are many, would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# What `make test-processors` emulates.
PROCESSORS ?= Haswell Nehalem

# uv does not read pip's configuration: hand it the folder of wheels that pip is told of, where it is told of one.
export UV_FIND_LINKS ?= $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null || echo "$$PIP_FIND_LINKS")
ifeq ($(strip $(UV_FIND_LINKS)),)
unexport UV_FIND_LINKS
endif

.PHONY: run test test-all test-gpu test-processors test-other-processor lint types unit plan ui docs pictures bench bench-targets bench-optimum bench-scale attack benchmark measured check-measured canary faults finding-examples operators reports axe fuzz-store fuzz-files clean

run: $(VENV)/.run
	$(BIN)/convkit run $(RECIPE)

# mypy runs beside the tests, which begin by importing what they need.
test: $(VENV)/.test lint
	$(MAKE) --no-print-directory -j 2 types unit

# As `test`, and every further sample that `thorough` marks: all faults, all architectures, more environments.
test-all: $(VENV)/.test lint types
	$(BIN)/python -m pytest -m "" -n $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder --durations 20

unit: $(VENV)/.test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder --durations 20

# The same tests' machinery on a real device, in an environment with onnxruntime for CUDA; fails where there is none.
test-gpu: $(VENV)-gpu/.test
	$(VENV)-gpu/bin/python -m pytest tests/gpu -n $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder
	$(VENV)-gpu/bin/python benchmarks/gpu.py

# What speaks of integer kernels, simulations and denormal numbers, on processors with saturating (Haswell) and with exact
# (Nehalem) integer kernels, both by qemu's user mode. Installs nothing: fails and says what it needs if that is absent.
test-processors: $(addprefix processor-,$(PROCESSORS))
	PROCESSORS="$(PROCESSORS)" $(BIN)/python -m pytest -m emulated -n 2 -p no:cacheprovider --durations 5 \
	  $$(grep -rlE --include='test_*.py' '@emulated|mark\.emulated' tests)

# The half of it that `make test` on this machine is not.
test-other-processor: $(VENV)/.test
	$(MAKE) --no-print-directory test-processors PROCESSORS="$$($(BIN)/python tests/emulation/emulated_python.py)"

# Only the files that hold such a test: to import all of them would take an emulated Python minutes.
processor-%: $(VENV)/.test
	$(BIN)/python tests/emulation/emulated_python.py $* $(VENV)/emulated/$*
	$(VENV)/emulated/$*/bin/python -m pytest -m "processors and not thorough$(if $(EMULATED), and $(EMULATED))" -n 2 --dist loadscope --no-loadscope-reorder \
	  -p no:cacheprovider --durations 5 $$(grep -rl --include='test_*.py' 'mark\.processors' tests)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

plan: $(VENV)/.run
	$(BIN)/convkit plan $(RECIPE)

ui: $(VENV)/.run
	$(BIN)/convkit ui

# The recipe's targets beside their original, then convkit beside optimum-cli.
bench: bench-targets bench-optimum

bench-targets: $(VENV)/.run
	$(BIN)/convkit bench $(RECIPE)

# The documentation as a site: site/index.html, readable without a server.
docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The documentation's pictures of a terminal, drawn anew from runs.
pictures: $(VENV)/.test
	$(BIN)/python docs/draw_pictures.py

benchmark: $(VENV)/.test
	$(BIN)/python benchmarks/spine.py

# optimum-cli and Olive get environments of their own.
bench-optimum: $(VENV)/.test $(VENV)-optimum/.test $(VENV)-olive/.test
	$(BIN)/python benchmarks/optimum.py --optimum $(VENV)-optimum/bin/optimum-cli --olive $(VENV)-olive/bin/olive

# How commands grow with runs, targets, recipes, artifacts and nodes.
attack: $(VENV)/.test
	$(BIN)/python benchmarks/attack.py --rounds 100

bench-scale: $(VENV)/.test
	$(BIN)/python benchmarks/scale.py

# The shipped recipes' results: written as a baseline and a page (docs/measured.md), or compared with it.
# RECIPES='recipes/t5.yaml' measures a part.
measured: $(VENV)/.test
	$(BIN)/python benchmarks/measured.py $(RECIPES)

check-measured: $(VENV)/.test
	$(BIN)/python benchmarks/measured.py --check $(RECIPES)

# The canary recipe under the newest releases of its tools; the summary names what they changed.
canary: $(VENV)/.run
	$(BIN)/convkit nightly recipes/canary.yaml --canary

$(VENV)-optimum/.test: $(VENV)/bin/uv
	$(BIN)/uv venv --quiet --clear $(VENV)-optimum
	$(BIN)/uv pip install --quiet --python $(VENV)-optimum/bin/python optimum-onnx "onnxruntime==1.31.*" "transformers==4.57.*" torch==2.13.0
	touch $@

$(VENV)-olive/.test: $(VENV)/bin/uv
	$(BIN)/uv venv --quiet --clear $(VENV)-olive
	$(BIN)/uv pip install --quiet --python $(VENV)-olive/bin/python olive-ai "onnxruntime==1.31.*" "transformers==4.57.*" torch==2.13.0 onnxscript
	touch $@

# What people report in public trackers, scored; REPORTS='nearest_*' runs a part of it.
reports: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m reports $(if $(REPORTS),$(foreach name,$(REPORTS),'$(name)'))

# Torch's own samples of its operators, converted for every runtime and compared; OPERATORS='fft.*' runs a part of it.
operators: $(VENV)/.test
	TQDM_DISABLE=1 PYTHONPATH=tests $(BIN)/python -m operators $(if $(OPERATORS),$(foreach name,$(OPERATORS),'$(name)'))

# The corpus of faults, scored; FAULTS='contract:*' runs a part of it.
faults: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m faults $(if $(FAULTS),$(foreach name,$(FAULTS),'$(name)'))

# What a run says of one fault for each code, for the pages of findings that have no example yet.
finding-examples: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m faults --examples $(if $(FAULTS),$(foreach name,$(FAULTS),'$(name)'))

# Checks reports and pages with axe-core in Chromium. REPORTS='report.html' names others. Needs npm.
PAGES := index cli recipe measured faults findings/index findings/N202 findings/N506 how-to/take-it-along how-to/nan-in-float16
axe: REPORTS ?= $(PAGES:%=site/%.html)
axe: $(VENV)/.test docs
	npm install --silent --prefix $(VENV)/axe axe-core@4
	$(BIN)/python tests/tools/axe.py $(VENV)/axe/node_modules/axe-core/axe.min.js $(REPORTS)

# Damages 500 random places of a home, one after another, and holds every promise against the bytes;
# then every kind of file in it in every way, and looks how commands end.
fuzz-store: $(VENV)/.test
	$(BIN)/python tests/host/store/fuzzing.py --rounds 500
	$(BIN)/python tests/host/store/home_damage.py

# Damages ML packages, safetensors headers, tokenizers and texts, 500 times each.
fuzz-files: $(VENV)/.test
	$(BIN)/python tests/worker/original/loading/damaged_sources.py --rounds 500

$(VENV)/bin/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "uv>=0.8"

$(VENV)/.run: $(VENV)/bin/uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable ".[ui]"
	touch $@

$(VENV)/.test: $(VENV)/bin/uv pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable ".[ui,docs,test]"
	touch $@ $(VENV)/.run

$(VENV)-gpu/.test: $(VENV)/bin/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear $(VENV)-gpu
	$(BIN)/uv pip install --quiet --python $(VENV)-gpu/bin/python --editable ".[test]"
	$(BIN)/uv pip uninstall --quiet --python $(VENV)-gpu/bin/python onnxruntime
	$(BIN)/uv pip install --quiet --python $(VENV)-gpu/bin/python "onnxruntime-gpu[cuda,cudnn]==1.31.*" cuda-python
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-gpu $(VENV)-optimum $(VENV)-olive build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
