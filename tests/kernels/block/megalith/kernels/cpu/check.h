// A GPU's kernels take checks of a GPU (codegen/dialect.h).
#include "megalith/kernels/cuda/check.cuh"
