#include "megalith/graph/operator.h"

namespace megalith::ops {

graph::Operator attention_cached_of(const std::string& name, bool norm);  // attention_whole_cached.cpp

/// attention_whole_cached with the q norm of Qwen3.
graph::Operator attention_whole_cached_norm() { return attention_cached_of("attention_whole_cached_norm", true); }

}  // namespace megalith::ops
