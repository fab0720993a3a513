// wide_block_test.cpp with room for five slots: a ring that is no multiple of the parts of a block would have to be
// longer (stream::ring_slots()), so it has four.
#include "megalith/engine/quantize.h"
namespace host = megalith;
#define MEGALITH_WIDE_ROOM 5
#define megalith megalith_wide_short_ring
#define WideBlock WideShortRing
#include "wide_block_test.cpp"
