#include "megalith/graph/operator.h"

namespace megalith::ops {

graph::Operator attention_partial_of(const std::string& name, bool norm);  // attention_partial_qkv.cpp

/// attention_partial_qkv with the q/k norm of Qwen3.
graph::Operator attention_partial_qkv_norm() { return attention_partial_of("attention_partial_qkv_norm", true); }

}  // namespace megalith::ops
