// In the place of megalith/kernels/cuda/arch/cluster.cuh: what a block's partner is, a program of tests has in its
// block_threads.h.
#pragma once

#include "megalith/kernels/cuda/arch/ptx.cuh"
