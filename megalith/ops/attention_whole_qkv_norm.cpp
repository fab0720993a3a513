#include "megalith/ops/attention_qkv.h"

namespace megalith::ops {

/// attention_whole_qkv with the q/k norm of Qwen3.
graph::Operator attention_whole_qkv_norm() { return attention_of("attention_whole_qkv_norm", true, true); }

}  // namespace megalith::ops
