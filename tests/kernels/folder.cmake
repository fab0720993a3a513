# As generated kernels are compiled (codegen/emit.h), as far as it changes results or warnings.
target_compile_options(test_kernels PRIVATE -fopenmp-simd -ffp-contract=off)
# A block of the host's threads stands in for a GPU's, which look at words as they like; #pragma unroll is NVRTC's.
set_source_files_properties(kernels/advance_block_test.cpp kernels/attention_block_test.cpp kernels/attention_rows_block_test.cpp kernels/combine_block_test.cpp kernels/draft_model_block_test.cpp kernels/faults_block_test.cpp kernels/find_match_block_test.cpp kernels/gather_block_test.cpp
                            kernels/linear_block_test.cpp kernels/next_batch_block_test.cpp kernels/sampling_block_test.cpp kernels/stream_runs_block_test.cpp kernels/wide_block_test.cpp
                            kernels/wide_odd_ring_test.cpp kernels/wide_short_ring_test.cpp PROPERTIES COMPILE_OPTIONS
                            "-iquote;${CMAKE_CURRENT_LIST_DIR}/block;-iquote;${CMAKE_CURRENT_SOURCE_DIR}/support/block;-fno-strict-aliasing;-Wno-unknown-pragmas")
# They calculate for minutes: half as long so, and a quarter longer to compile.
set_source_files_properties(kernels/attention_rows_block_test.cpp kernels/linear_block_test.cpp kernels/wide_block_test.cpp kernels/wide_odd_ring_test.cpp
                            kernels/wide_short_ring_test.cpp PROPERTIES COMPILE_FLAGS -Og SKIP_PRECOMPILE_HEADERS ON)
# What a CPU rounds weights to is what a GPU's packing must come to.
target_link_libraries(test_kernels PRIVATE megalith_engine)
