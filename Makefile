# The front door. CMake builds, ninja runs it; this file only says what people usually want.
BUILD   := build/release
MODEL   ?= models/storyteller
PROMPT  ?= Once upon a time
TARGET  ?= cpu
# The first build shows its progress; later ones speak only if they have something to say.
NINJA    = ninja $(if $(wildcard $(MEGALITH)),--quiet)
MEGALITH := $(BUILD)/tools/megalith

.PHONY: help run build test test-all wheel check asan tsan fuzz soak random-loops serve-suites format clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  make run PROMPT="A dragon" MODEL=path/to/model'

run: build  ## install what is missing, build, and let the bundled model tell a story
	@$(MEGALITH) run $(MODEL) -p "$(PROMPT)"

build:  ## build the megalith command
	@tools/setup.sh run
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release -DMEGALITH_TESTS=OFF >&2
	@$(NINJA) -C $(BUILD) megalith >&2

# The first time, libraries are compiled while Python's packages are fetched, and those of Debian that only running tests
# takes: a browser is 350 MB. With PACKAGES=check the linters come, too.
PACKAGES ?= test
test:  ## install what is missing, build everything, run all tests
	@tools/setup.sh build
	@tools/setup.sh $(PACKAGES) & installing=$$!; \
	[ -f build/python/.ready ] || { [ -f $(BUILD)/build.ninja ] || cmake --preset release -DMEGALITH_TESTS=ON >&2; ninja -C $(BUILD) megalith_serve & }; \
	if tools/python_env.sh; then python=ON; else python=OFF; echo "[SKIP] the tests of the Python package"; fi; \
	wait $$installing; installed=$$?; wait; [ $$installed = 0 ] || exit 1; \
	grep -qs '^MEGALITH_TESTS:BOOL=ON' $(BUILD)/CMakeCache.txt && \
	grep -qs "^MEGALITH_PYTHON:BOOL=$$python" $(BUILD)/CMakeCache.txt || \
	cmake --preset release -DMEGALITH_TESTS=ON -DMEGALITH_PYTHON=$$python
	@ninja -C $(BUILD)
	@tools/run_tests.sh $(BUILD)

# Where configurations show the same, `make test` has those that stand for the rest (tests/support/configurations.h).
test-all:  ## the same in all configurations of kernels, which takes longer
	@MEGALITH_ALL_CONFIGURATIONS=1 $(MAKE) --no-print-directory test

wheel:  ## pip install in a clean virtual environment, import, quick start
	@tools/setup.sh test
	@tools/check_wheel.sh

check:  ## formatting, include order, links of the pages, headers alone, cppcheck
	@tools/setup.sh check
	@tools/check_format.sh
	@tools/check_includes.py
	@tools/check_docs.py
	@tools/check_cppcheck.sh & cppcheck=$$!; tools/check_headers.py; headers=$$?; wait $$cppcheck && exit $$headers

asan:  ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer, kernels included
	@tools/setup.sh test
	@[ -f build/asan/build.ninja ] || cmake --preset asan
	@ninja -C build/asan
	@UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/support/leaks.supp:print_suppressions=0 \
	  tools/run_tests.sh build/asan

# Threads live in the runtime, the engine, the server, the kernel cache and the progress line, and test_device has a GPU's worker on
# them; the rest is left to asan. Judges that compute for minutes on one thread (the float64 interpreter, the mutation
# campaign) have nothing to show here.
tsan:  ## the tests with threads under ThreadSanitizer, kernels included
	@tools/setup.sh test
	@[ -f build/tsan/build.ninja ] || cmake --preset tsan
	@ninja -C build/tsan test_base test_jit test_runtime test_device test_kernels test_engine test_serve
	@GTEST_FILTER='-*Mutation*:*EqualsTheInterpreter*' TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 \
	  tools/run_tests.sh build/tsan -R '^(base|jit|runtime|device|kernels\..|engine\..|serve)$$'

fuzz:  ## a minute of fuzzing for each reader of files that nobody vouches for
	@tools/setup.sh fuzz
	@tools/run_fuzz.sh 60

REQUESTS ?= 100000
soak: build  ## 100,000 requests that come, share prompts and hang up at random; TARGET=cuda on a GPU, DRAFTS=7 with drafts
	@$(MEGALITH) bench soak $(MODEL) --requests $(REQUESTS) --target $(TARGET) --max-batch 64 -c 512 --batch-invariant -v $(if $(DRAFTS),--draft-tokens $(DRAFTS))

random-loops: build  ## 100,000 random loop kernels under random schedules, and as many wrong ones: a night
	@$(MEGALITH) loops --random 100000

serve-suites: build  ## tests of the server that fetch 1.3 GB first: LangChain, Ray Serve, lm-evaluation-harness, llama.cpp's
	@tools/serve_suites.sh $(MEGALITH)

format:  ## rewrite all sources as .clang-format has it
	@tools/check_format.sh --fix

clean:  ## delete what was built
	@rm -rf build
