# make           build build/release/signet
# make demo      watch DeltaNet and Mamba fail and solve parity; ends with report.html
# make test      every test
# make install   the program, its manual page, completions and library (PREFIX=/usr/local, DESTDIR=)
# make deb       a Debian package in build/release
# The other targets are for those who change the program: CONTRIBUTING.md says what each does and needs.
PRESET ?= release
CUDA ?= 0
ifeq ($(CUDA),1)
PRESET := cuda
endif
BUILD := build/$(PRESET)

.PHONY: all demo test test-isa test-python test-ranks cuda-check setup build install deb asan tsan tidy fuzz clang aarch64 fresh-machine \
  format clean bench-peers
all: setup build

setup:
	@tools/setup build

build:
	@$(if $(CMAKE_FLAGS),,test -f $(BUILD)/build.ninja ||) cmake --preset $(PRESET) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) --target signet

demo: all
	@$(BUILD)/signet demo

test:
	@tools/setup test
	@cmake --preset $(PRESET) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD)
	@cd $(BUILD) && ctest --output-on-failure -j $$(nproc)

# What computes, on every instruction set that this processor has and `make test` did not take.
test-isa: test
	@best=$$($(BUILD)/signet info | sed -n 's/^isa_available *//p'); for isa in base avx2 avx512; do \
	  [ $$isa != "$$best" ] || break; echo "SIGNET_ISA=$$isa"; \
	  (cd $(BUILD) && SIGNET_ISA=$$isa ctest --output-on-failure -j $$(nproc) -L '^(kernels|models|train|capi|analysis)$$') || exit 1; done

test-python: all
	@cmake --build $(BUILD) --target signet_python_files
	@tools/test-python $(BUILD) python3 all || [ $$? = 77 ]  # it says what it skips where pip cannot reach PyPI

test-ranks: all
	@tools/test-ranks $(BUILD)/signet

cuda-check:
	@tools/setup test
	@cmake --preset cuda-check $(CMAKE_FLAGS) >/dev/null
	@cmake --build build/cuda-check --target signet_cuda cuda_check

bench-peers: all
	@bench/peers/run $(BUILD)/signet

PREFIX ?= /usr/local
install: all
	@cmake --build "$(BUILD)" --target signet_operators
	@DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" --prefix "$(PREFIX)"

deb: all
	@tools/setup deb
	@cmake --build $(BUILD) --target signet_operators
	@cd $(BUILD) && cpack -G DEB

# The program's own memory limits would meet the sanitizers' shadow memory, its start is not that of a release, and without
# free file descriptors a sanitizer cannot look either: those tests are left out. tests/tsan.supp lists what libraries do;
# some tests go on with threads in a child that they forked.
asan tsan: export TSAN_OPTIONS = suppressions=$(CURDIR)/tests/tsan.supp die_after_fork=0
asan tsan:
	@tools/setup test
	@cmake --preset $@ $(CMAKE_FLAGS) >/dev/null
	@cmake --build build/$@
	@cd build/$@ && ctest --output-on-failure -j $$(nproc) -E 'OutOfMemory|MemoryDoesNotGrow|LittleAddressSpace|StartsQuickly|TooManyOpenFiles'

tidy:
	@tools/setup tidy
	@cmake --preset clang -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DSIGNET_TESTS=OFF $(CMAKE_FLAGS) >/dev/null
	@tools/tidy build/tidy

FUZZ_SECONDS ?= 600
fuzz:
	@tools/setup fuzz
	@cmake --preset fuzz $(CMAKE_FLAGS) >/dev/null
	@cmake --build build/fuzz --target fuzz_targets
	@ls tests/fuzz/fuzz_*.cc | sed 's|.*/fuzz_||; s|\.cc$$||' | xargs -P $$(nproc) -I{} sh -c \
	  'mkdir -p build/fuzz/corpus/{}; build/fuzz/fuzz_{} -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 \
	    -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ build/fuzz/corpus/{} tests/fuzz/seeds/{} > build/fuzz/{}.log 2>&1 \
	    && echo "{}: $$(tail -n 1 build/fuzz/{}.log)" || { echo "{}: build/fuzz/{}.log"; tail -n 40 build/fuzz/{}.log; exit 255; }'

clang:
	@tools/setup test
	@tools/setup fuzz
	@cmake --preset clang $(CMAKE_FLAGS) >/dev/null
	@cmake --build build/clang
	@cd build/clang && ctest --output-on-failure -j $$(nproc)

aarch64:
	@tools/aarch64

fresh-machine:
	@tools/fresh-machine

format:
	@find src tests -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format-14 -i

clean:
	@rm -rf build
