#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

/// attention_partial_qkv of all positions at once, for many rows: there is nothing to put together behind it.
graph::Operator attention_whole_qkv() { return attention_of("attention_whole_qkv", false, true); }

}  // namespace megalith::ops
