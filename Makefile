# make        build build/release/signet
# make demo   watch DeltaNet and Mamba fail and solve parity; ends with report.html
# make test   every test (quick and standard tiers)
# make test-python   the Python package with PyTorch, transformers and JAX, in build/venv (downloads some GB)
# make cuda-check   compile the CUDA part as far as a machine without a GPU can (needs nvcc)
# make bench-peers   a training step against the same model in eager PyTorch (PYTHON=one that has it)
PRESET ?= release
CUDA ?= 0
ifeq ($(CUDA),1)
PRESET := cuda
endif
BUILD := build/$(PRESET)

.PHONY: all demo test test-python cuda-check setup build format clean bench-peers
all: setup build

setup:
	@tools/setup build

build:
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) --target signet

demo: all
	@$(BUILD)/signet demo

test:
	@tools/setup test
	@cmake --preset $(PRESET) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD)
	@cd $(BUILD) && ctest --output-on-failure -j $$(nproc)

test-python: all
	@cmake --build $(BUILD) --target signet_python_files
	@tools/test-python $(BUILD) python3 all

cuda-check:
	@tools/setup test
	@cmake --preset cuda-check $(CMAKE_FLAGS) >/dev/null
	@cmake --build build/cuda-check --target signet_cuda cuda_check

bench-peers: all
	@bench/peers/run $(BUILD)/signet

format:
	@find src tests -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs clang-format-14 -i

clean:
	@rm -rf build
