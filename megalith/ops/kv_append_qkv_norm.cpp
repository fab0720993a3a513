#include "megalith/graph/operator.h"

namespace megalith::ops {

graph::Operator kv_append_of(const std::string& name, bool norm);  // kv_append_qkv.cpp

/// kv_append_qkv with the k norm of Qwen3.
graph::Operator kv_append_qkv_norm() { return kv_append_of("kv_append_qkv_norm", true); }

}  // namespace megalith::ops
