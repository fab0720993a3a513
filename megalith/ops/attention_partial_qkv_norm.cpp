#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

/// attention_partial_qkv with the q/k norm of Qwen3.
graph::Operator attention_partial_qkv_norm() { return attention_of("attention_partial_qkv_norm", true, false); }

}  // namespace megalith::ops
