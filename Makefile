# The commands of the README. Each sets up what is missing, builds, fetches, and exits with what its last step said.
# CMake and Ninja do the building; this file only puts the steps in order.

JOBS ?= $(shell nproc)
VARVE := build/release/bin/varve
TEST_MODEL := smollm2-135m

.PHONY: help setup build test demo format clean

help:
	@echo "make demo    a real model reads a real document, with the dense cache and with minima, and shows both"
	@echo "make test    the release build's tests"
	@echo "make build   the program alone: $(VARVE)"
	@echo "make setup   installs missing Debian packages (the others do this first)"
	@echo "make format  formats the sources in place"
	@echo "make clean   removes build/ (the llama.cpp build and the models stay in ~/.cache/varve)"

setup:
	@scripts/setup.sh

build/release/build.ninja: | setup
	cmake --preset release

build: setup build/release/build.ninja
	cmake --build --preset release --target varve -j $(JOBS)

test: setup build/release/build.ninja
	cmake --build --preset release -j $(JOBS)
	$(VARVE) pull $(TEST_MODEL)
	ctest --test-dir build/release --output-on-failure --label-exclude '^large$$' -j 2

demo: build
	examples/demo.sh

format:
	git ls-files '*.cc' '*.h' | xargs clang-format -i

clean:
	rm -rf build
