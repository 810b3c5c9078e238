# make demo | test | check | bench | wheel | format | lint | shared | asan | tsan | file-systems | torture | fuzz
#
# Every target works from a bare clone on a Debian machine and does only what is not done yet:
# system packages (build/.apt), virtual environments (.venv, .venvs), C++ build (build/release),
# Python package (.venv/.package).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := test

PYTHON ?= python3
# Where torch comes from, as pip arguments: elsewhere than on a machine with a CPU index of its own,
# TORCH_PIP_ARGS="--index-url https://download.pytorch.org/whl/cpu" avoids several GB of CUDA.
TORCH_PIP_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
TORTURE_ARGS ?=
FUZZ_SECONDS ?= 30

BIN := $(CURDIR)/.venv/bin
REQUIREMENTS := tools/requirements
PIP := pip --disable-pip-version-check --quiet

# The cmake and the ninja of the virtual environment come before the system's.
export PATH := $(BIN):$(PATH)

# ccache knows a source again in another build folder, and keeps tests, which have a precompiled
# header.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_SLOPPINESS := pch_defines,time_macros

CXX_FOLDERS := $(wildcard include src cli python/src tests fuzz bench examples)
CXX_FILES = $(shell find $(CXX_FOLDERS) -path tests/data -prune -o -name '*.[ch]pp' -print)
PACKAGE_FILES = $(shell find include src cli cmake python licenses -name '*.pyc' -prune -o -type f -print)

.PHONY: help deps build ctest python pytest test check demo bench format lint lint-cpp lint-python \
	types layers words shared asan tsan file-systems torture fuzz fuzz-release coverage wheel \
	wheel-test sdist sdist-test doxygen test-minimum test-examples test-adapters test-ray clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# --- environments ---

build/.apt: $(REQUIREMENTS)/apt-build.txt tools/apt.sh
	@tools/apt.sh $<
	@mkdir -p build && touch $@

build/.apt-file-systems: $(REQUIREMENTS)/apt-file-systems.txt tools/apt.sh
	@tools/apt.sh $<
	@mkdir -p build && touch $@

build/.apt-clang: $(REQUIREMENTS)/apt-clang.txt tools/apt.sh
	@tools/apt.sh $<
	@mkdir -p build && touch $@

# A virtual environment whose making was interrupted has a python and no pip: it is made anew.
# torch first and pinned: as a dependency of something else it would come with CUDA.
.venv/.ok: $(REQUIREMENTS)/torch.txt $(REQUIREMENTS)/dev.txt | build/.apt
	test -x .venv/bin/pip || $(PYTHON) -m venv --clear .venv
	.venv/bin/$(PIP) install $(TORCH_PIP_ARGS) -r $(REQUIREMENTS)/torch.txt
	.venv/bin/$(PIP) install -r $(REQUIREMENTS)/dev.txt
	@touch $@

.venvs/notorch/.ok: $(REQUIREMENTS)/notorch.txt | build/.apt
	test -x .venvs/notorch/bin/pip || $(PYTHON) -m venv --clear .venvs/notorch
	.venvs/notorch/bin/$(PIP) install -r $<
	@touch $@

# An older tensordict over the same torch: a .pth file adds the packages of .venv after its own.
.venvs/tensordict-%/.ok: $(REQUIREMENTS)/tensordict-%.txt .venv/.ok
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
	$(@D)/bin/$(PIP) install --no-deps -r $<
	$(@D)/bin/python -c 'import tensordict; assert tensordict.__version__.startswith("$*.")'
	@touch $@

OLD_TENSORDICTS := .venvs/tensordict-0.14/.ok .venvs/tensordict-0.11/.ok

# The tests put its packages behind those of .venv.
.venvs/torchsnapshot/.ok: $(REQUIREMENTS)/torchsnapshot.txt .venv/.ok
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/$(PIP) install --no-deps -r $<
	@touch $@

.venvs/torch_checkpointing/.ok: $(REQUIREMENTS)/torch_checkpointing.txt .venv/.ok
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/$(PIP) install --no-deps -r $<
	@touch $@

# Libraries of other data, over the same torch and numpy.
.venvs/examples/.ok: $(REQUIREMENTS)/examples.txt .venv/.ok
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/$(PIP) install -r $< -c $(REQUIREMENTS)/dev.txt
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
	@touch $@

# Training libraries. pip sees the torch of .venv, so that none with CUDA is fetched.
.venvs/adapters/.ok: $(REQUIREMENTS)/adapters.txt .venv/.ok
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
	$(@D)/bin/$(PIP) install -r $<
	@touch $@

# Ray Data has many packages of its own, and starts processes of this environment.
.venvs/ray/.ok: $(REQUIREMENTS)/ray.txt .venv/.ok
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
	$(@D)/bin/$(PIP) install -r $<
	@touch $@

UPSTREAMS := $(OLD_TENSORDICTS) .venvs/torchsnapshot/.ok

.venv/.demo: $(REQUIREMENTS)/demo.txt .venv/.ok
	.venv/bin/$(PIP) install --no-deps -r $<
	@touch $@

.venv/.bench: $(REQUIREMENTS)/bench.txt .venv/.ok
	.venv/bin/$(PIP) install --no-deps -r $<
	@touch $@

## make deps      installs the system packages and makes the virtual environments
deps: build/.apt .venv/.ok .venvs/notorch/.ok $(UPSTREAMS)

# --- C++ ---

build/%/build.ninja: CMakePresets.json | build/.apt .venv/.ok
	cmake --preset $*

## make build     builds the C++ library, the program, the tests (build/release)
build: build/release/build.ninja
	cmake --build --preset release

ctest: build
	ctest --preset release

## make shared    builds the shared library and the program with clang (build/shared), and uses them
shared: build/.apt-clang build/shared/build.ninja
	cmake --build --preset shared
	cmake -D BUILD_DIR=build/shared -D WORK_DIR=$(CURDIR)/build/shared/consumer -D SHARED=ON \
	  -D CONFIG=Debug -D GENERATOR=Ninja -D MAKE_PROGRAM=$$(command -v ninja) \
	  -D CXX_COMPILER=$$(command -v $(CXX)) -D PYTHON=$(PYTHON) \
	  -P tests/consumer/run.cmake

# --- Python ---

# The same options as build/release, so that ccache compiles each source once.
.venv/.package: CMakeLists.txt pyproject.toml NOTICE tools/pypi_readme.py $(PACKAGE_FILES) \
		| build/.apt .venv/.ok .venvs/notorch/.ok
	rm -rf build/wheel
	.venv/bin/$(PIP) wheel --no-build-isolation --no-deps --wheel-dir build/wheel \
	  --config-settings=cmake.define.TENFOLD_WERROR=ON \
	  --config-settings=cmake.define.TENFOLD_DEPS=system .
	.venv/bin/$(PIP) install --no-deps --force-reinstall build/wheel/*.whl
	.venvs/notorch/bin/$(PIP) install --no-deps --force-reinstall build/wheel/*.whl
	@touch $@

## make python    builds the Python package and installs it into .venv and .venvs/notorch
python: .venv/.package

pytest: .venv/.package $(UPSTREAMS)
	.venv/bin/python -m pytest --numprocesses auto --dist worksteal $(PYTEST_ARGS)

# --- a wheel that installs anywhere ---

# zig compiles for the glibc of another system and links its C++ runtime into the extension; the
# libraries are compiled by it as well, from the sources that TENFOLD_DEPS=bundled pins.
WHEEL_GLIBC ?= 2.28
WHEEL_MACHINE ?= x86_64
WHEEL_BIN := $(CURDIR)/.venvs/wheel/bin
WHEEL_TARGET := $(WHEEL_MACHINE)-linux-gnu.$(WHEEL_GLIBC)

.venvs/wheel/.ok: $(REQUIREMENTS)/wheel.txt | build/.apt
	test -x $(@D)/bin/pip || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/$(PIP) install -r $<
	@touch $@

build/sources/.ok: tools/bundled_sources.sh
	$< build/sources

dist/.wheel: CMakeLists.txt pyproject.toml README.md NOTICE LICENSE tools/pypi_readme.py \
		$(wildcard tools/zig/*) $(PACKAGE_FILES) .venvs/wheel/.ok build/sources/.ok
	rm -rf build/wheel-linux dist/*.whl
	env PATH=$(WHEEL_BIN):$$PATH \
	  TENFOLD_ZIG=$$($(WHEEL_BIN)/python -c 'import ziglang; print(ziglang.__path__[0])')/zig \
	  TENFOLD_ZIG_TARGET=$(WHEEL_TARGET) CCACHE_COMPILERTYPE=clang \
	  CCACHE_COMPILERCHECK="string:$(WHEEL_TARGET) $$(grep ziglang $(REQUIREMENTS)/wheel.txt)" \
	  $(WHEEL_BIN)/$(PIP) wheel --no-build-isolation --no-deps --wheel-dir build/wheel-linux \
	  --config-settings=build-dir=build/zig/{wheel_tag} \
	  --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/toolchains/zig.cmake \
	  --config-settings=cmake.define.TENFOLD_DEPS=bundled \
	  --config-settings=cmake.define.TENFOLD_BUNDLED_SOURCES=$(CURDIR)/build/sources .
	PATH=$(WHEEL_BIN):$$PATH $(WHEEL_BIN)/auditwheel repair --wheel-dir dist \
	  --plat manylinux_$(subst .,_,$(WHEEL_GLIBC))_$(WHEEL_MACHINE) build/wheel-linux/*.whl
	$(WHEEL_BIN)/twine check --strict dist/*.whl
	@touch $@

## make wheel     builds dist/*.whl, which installs on every Linux of x86_64 with glibc 2.28 or newer
wheel: dist/.wheel

## make wheel-test  installs it into empty environments, with and without numpy and torch
wheel-test: wheel
	$(WHEEL_BIN)/python tests/wheel/run.py dist/*.whl --glibc $(WHEEL_GLIBC)

## make sdist     builds dist/*.tar.gz, the source distribution of the Python package
sdist: .venvs/wheel/.ok
	rm -rf dist/*.tar.gz
	$(WHEEL_BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
	$(WHEEL_BIN)/twine check --strict dist/*.tar.gz

## make sdist-test  builds a wheel from what dist/*.tar.gz has, with bundled libraries, and uses it
sdist-test: sdist build/sources/.ok
	rm -rf build/sdist && mkdir -p build/sdist/unpacked
	tar -xf dist/*.tar.gz -C build/sdist/unpacked --strip-components=1
	cd build/sdist/unpacked && PATH=$(WHEEL_BIN):$$PATH CCACHE_BASEDIR=$$PWD \
	  $(WHEEL_BIN)/$(PIP) wheel --no-build-isolation --no-deps --wheel-dir .. \
	  --config-settings=cmake.define.TENFOLD_DEPS=bundled \
	  --config-settings=cmake.define.TENFOLD_BUNDLED_SOURCES=$(CURDIR)/build/sources .
	$(WHEEL_BIN)/python tests/wheel/run.py --without-torch build/sdist/*.whl

## make test-examples  the examples and pages of other libraries' data, with those libraries
test-examples: .venv/.package .venvs/examples/.ok
	.venvs/examples/bin/python -m pytest tests/python/examples tests/python/test_docs.py

## make test-adapters  the adapters of Lightning, transformers, Accelerate, torchrl and torchdata
test-adapters: .venv/.package .venvs/adapters/.ok
	.venvs/adapters/bin/python -m pytest tests/python/adapters tests/python/test_docs.py

## make test-ray       the adapter of Ray Data and its example, on two workers of this machine
test-ray: .venv/.package .venvs/ray/.ok
	.venvs/ray/bin/python -m pytest tests/python/adapters/test_ray.py \
	  tests/python/adapters/test_examples.py::test_two_workers_ingest_and_two_ranks_train

## make test-minimum  a slice of the Python tests with the oldest torch and numpy of pyproject.toml
test-minimum: .venv/.package
	$(PYTHON) tests/wheel/run.py --floors build/wheel/*.whl

# --- what people ask for ---

## make test      C++ tests and Python tests
test: ctest pytest

## make demo      runs examples/demo.py
demo: .venv/.package .venv/.demo
	.venv/bin/python examples/demo.py

## make bench     measures against the peers and the bare system calls; BENCH_ARGS="save_many --write"
bench: .venv/.package .venv/.bench
	.venv/bin/python bench/run.py $(BENCH_ARGS)

## make format    formats C++ and Python
format: .venv/.ok
	.venv/bin/clang-format -i $(CXX_FILES)
	$(PYTHON) tools/make_stub.py
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

## make lint      checks format, Python rules, layers and words
lint: lint-cpp lint-python layers words

lint-cpp: .venv/.ok
	.venv/bin/clang-format --dry-run -Werror $(CXX_FILES)

lint-python: .venv/.ok
	$(PYTHON) tools/make_stub.py --check
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

## make doxygen   makes HTML of the C++ headers in build/doxygen; fails if a declaration has no comment
doxygen:
	@command -v doxygen > /dev/null || { echo "make doxygen: doxygen is missing; on Debian: apt install doxygen"; exit 1; }
	mkdir -p build/doxygen
	doxygen docs/Doxyfile

layers: | build/.apt
	$(PYTHON) tools/check_layers.py

words: | build/.apt
	$(PYTHON) tools/check_words.py

## make types     checks the types of the Python package, and what a program that uses it is told
types: .venv/.package
	.venv/bin/mypy
	.venv/bin/mypy --strict tests/python/types/typed_uses.py
	.venv/bin/mypy --follow-imports silent --allow-untyped-calls --no-warn-return-any \
	  --allow-subclassing-any --implicit-reexport examples/*.py
	rm -rf build/types && mkdir -p build/types
	cp -r "$$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tenfold" build/types
	.venv/bin/basedpyright --pythonpath .venv/bin/python --level error

## make asan      builds with ASan and UBSan (build/asan), runs the C++ tests
asan: build/.apt-clang build/asan/build.ninja
	cmake --build --preset asan
	ctest --preset asan

## make tsan      builds with TSan (build/tsan), runs the C++ tests of what works on threads
TSAN_TESTS := \
  core/tree/leaf formats/shared/leaf_writer formats/folder/folder formats/folder/open \
  formats/folder/verify formats/safetensors/safetensors formats/torch_file/torch_file \
  ingest/text/json_rows io/convert io/io io/load_into io/read_ahead os/thread/background \
  os/thread/helper_thread os/fs/file os/thread/no_fork os/memory/page_reader os/thread/thread_pool \
  dataset/loader/batch_loader dataset/loader/buffer_pool dict/mapped_dict \
  dict/write dataset/loader/residency
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
tsan: build/.apt-clang build/tsan/build.ninja
	cmake --build --preset tsan --target $(addsuffix _test,$(subst /,_,$(TSAN_TESTS)))
	ctest --preset tsan -L '^($(subst $(SPACE),|,$(strip $(TSAN_TESTS))))$$'

## make file-systems  runs the crash harness on ext4, xfs, btrfs, tmpfs, overlay and FUSE (as root)
file-systems: build/.apt-file-systems build
	tools/file_systems.sh

## make torture   tries to break every promise, for hours, and writes the tables of docs/reliability.md;
##                TORTURE_ARGS="--only kills --seconds 60"
torture: build/.apt-file-systems build .venv/.package $(UPSTREAMS) .venvs/torch_checkpointing/.ok
	.venv/bin/python tests/torture/run.py $(TORTURE_ARGS)
	.venv/bin/python tests/torture/run.py --tables

## make fuzz-release  gives every fuzz target FUZZ_SECONDS of CPU, keeps what it found, writes it down
fuzz-release: build/.apt-clang build/fuzz/build.ninja
	cmake --build --preset fuzz
	$(PYTHON) tools/fuzz.py --seconds $(FUZZ_SECONDS) --keep
	$(PYTHON) tests/torture/run.py --tables

## make coverage  counts which lines of the parsers the C++ tests and the fuzz corpora run
coverage: build/coverage/build.ninja
	cmake --build --preset coverage
	$(PYTHON) tools/coverage.py

## make fuzz      runs every fuzz target for FUZZ_SECONDS (30)
fuzz: build/.apt-clang build/fuzz/build.ninja
	cmake --build --preset fuzz
	@shopt -s nullglob; for program in build/fuzz/fuzz/fuzz_*; do \
	  name=$${program##*/fuzz_}; \
	  echo "== $$name, $(FUZZ_SECONDS) s"; \
	  mkdir -p "build/fuzz/corpus/$$name" "build/fuzz/findings" "fuzz/corpus/$$name"; \
	  "$$program" -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 \
	    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$$name-" \
	    "build/fuzz/corpus/$$name" "fuzz/corpus/$$name"; done

## make check     everything the continuous integration does
check:
	.ci/run

## make clean     removes builds, keeps the virtual environments
clean:
	rm -rf build dist .venv/.package
