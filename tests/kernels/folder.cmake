# As generated kernels are compiled (codegen/emit.h), as far as it changes results or warnings.
target_compile_options(test_kernels PRIVATE -fopenmp-simd -ffp-contract=off)
