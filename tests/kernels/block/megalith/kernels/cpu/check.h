// A GPU's kernels take checks of a GPU (codegen/dialect.h).
#include "megalith/kernels/cuda/common/check.cuh"
