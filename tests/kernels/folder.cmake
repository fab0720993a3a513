# As generated kernels are compiled (codegen/emit.h), as far as it changes results or warnings.
target_compile_options(test_kernels PRIVATE -fopenmp-simd -ffp-contract=off)
# A block of the host's threads stands in for a GPU's; #pragma unroll is NVRTC's.
set_source_files_properties(kernels/attention_block_test.cpp kernels/sampling_block_test.cpp PROPERTIES COMPILE_OPTIONS
                            "-iquote;${CMAKE_CURRENT_LIST_DIR}/block;-Wno-unknown-pragmas")
