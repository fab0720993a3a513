// Whoever asks for the CPU's words gets the GPU's here, as in a kernel (codegen/dialect.h).
#pragma once

#include "megalith/runtime/cuda/sync.cuh"
