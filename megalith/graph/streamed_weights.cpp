#include "megalith/graph/operator.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/stream_layout.h"

namespace megalith::graph {

stream::Order StreamedWeights::order(const std::map<std::string, int64_t>& sizes) const {
  const int64_t rows = sizes.at(activations), k = sizes.at(columns);
  if (rows <= stream::kMostRows) return stream::order(rows, k, splits);
  const auto matrices = static_cast<int>(operands.size());
  if (!step.empty())
    return stream::wide_order(k, static_cast<int>(sizes.at(step)), matrices, abreast ? stream::wide_parts(rows) : 1);
  const int64_t n = sizes.at("N") * (stretches.empty() ? 1 : sizes.at(stretches));
  const int group = stream::wide_group(n, matrices);
  return stream::wide_order(k, group, matrices, stream::wide_abreast(n, group, rows));
}

}  // namespace megalith::graph
