# Attention, from the math to the metal. `make` lists what there is to make.
#
# PYTHON=python3.12   the Python to make .venv with (3.11 or newer; found by itself otherwise)
# PIP_ARGS="..."      more for pip, such as an index
# ARGS="..."          more for JupyterLab or pytest
# JOBS=2              tests at a time
# LIVE=1              a compiler in the book's pages, for kernels of a reader's own: 39 MB, by npm
PYTHON ?=
PIP_ARGS ?=
ARGS ?=
JOBS ?= 2
export PIP_ARGS
# Hundreds of processes import the course in a run of the tests: compiled once, whatever the surroundings ask.
export PYTHONDONTWRITEBYTECODE :=
# Relative paths only: the folder's name may hold spaces.
PY := .venv/bin/python

.PHONY: help ready lab test test-all slow book book-ready gpu-check gpu-first gpu-bench clean

help:
	@echo "make lab        open the course in JupyterLab (installs what it needs into .venv first)"
	@echo "make test       every notebook as shipped, and every quick test"
	@echo "make test-all   and the slow ones: notebooks solved, mutations, fuzzing, other compilers"
	@echo "make book       the notebooks as a site that opens from the disk: .build/book/html/index.html"
	@echo "make gpu-check  every kernel on this machine's GPU, with PYTHON=python3 as it is"
	@echo "make gpu-first  the first hour on a card: LIMIT=590 OUT=folder"
	@echo "make gpu-bench  how fast they are there: data/gpu/<card>/bench.json"
	@echo "make clean      empty the build cache"
	@echo
	@echo "make lab ARGS='--port 9000', make test ARGS='-k rope', PYTHON=python3.12, PIP_ARGS='--extra-index-url URL'"

# The first Python that is new enough; one that is asked for must be.
ready:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.14 python3.11 python); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    exec "$$python" course_lib/tools/install.py; \
	  fi; \
	done; \
	echo "No Python 3.11 or newer was found$(if $(PYTHON), under the name $(PYTHON)). Debian 12, Ubuntu 24.04: sudo apt install python3 python3-venv; Fedora: sudo dnf install python3; macOS: brew install python; then again, or name one: make lab PYTHON=python3.12" >&2; \
	exit 1

lab: ready
	@$(PY) -m course_lib lab $(ARGS)

# One thread a test: several that each want every core would mostly wait for one another.
test: ready
	@OMP_NUM_THREADS=1 $(PY) -m pytest --nbval -n $(JOBS) $(ARGS)

slow: book-ready
	@OMP_NUM_THREADS=1 $(PY) -m pytest -m slow -n $(JOBS) --dist worksteal $(ARGS)

# Sphinx and its theme are an extra; the pins of requirements.txt hold for it too.
book-ready: ready
	@$(PY) -c 'import myst_nb, sphinx_book_theme, sphinx_copybutton' 2>/dev/null || \
	  $(PY) -m pip install --quiet --no-build-isolation -c requirements.txt -e '.[book]' $(PIP_ARGS)

book: book-ready
	@$(PY) -m course_lib book $(if $(LIVE),--live) $(ARGS)

# With ONLY_SLOW=1 the quick tests are taken as done, as after `make test`.
test-all: $(if $(ONLY_SLOW),,test) slow

# On a machine with a card, with its own Python: torch, einops and pytest are enough, and nothing is installed.
gpu-check:
	@$(or $(PYTHON),python3) -m course_lib gpu-check $(ARGS)

gpu-first:
	@$(or $(PYTHON),python3) -m course_lib gpu-first $(if $(LIMIT),--limit $(LIMIT)) $(if $(OUT),--out "$(OUT)") $(if $(STEPS),--steps "$(STEPS)") $(ARGS)

gpu-bench:
	@$(or $(PYTHON),python3) -m course_lib gpu-bench $(ARGS)

clean: ready
	@$(PY) -m course_lib clean
