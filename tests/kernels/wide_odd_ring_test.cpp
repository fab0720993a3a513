// wide_block_test.cpp with seven slots, which is enough with one copy less under way (stream::ring_copies()).
#include "megalith/engine/quantize.h"
namespace host = megalith;
#define MEGALITH_WIDE_ROOM 7
#define MEGALITH_WIDE_FEW
#define megalith megalith_wide_odd_ring
#define WideBlock WideOddRing
#include "wide_block_test.cpp"
