#include <algorithm>

#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/stream_layout.h"
#include "megalith/ops/stream_choices.h"
#include "megalith/optimize/rules.h"
#include "megalith/optimize/uses.h"

namespace megalith::optimize {

using graph::Graph;
using graph::Node;

namespace {

// With more than 64 rows of activations a worker would read all of them from the L2 for 32 rows of weights. It has a few
// columns of more rows instead, of so many slices of K: then sums are handed over, which costs less where a row is
// long.
int64_t slices_of(const Goal& goal, int64_t rows, int64_t outputs, int64_t columns, bool is_int8) {
  constexpr int64_t kRows = 128, kMax = 8;  // of weights that a worker has, of all slices
  const int64_t most_short = rows <= 2 * stream::kWideRows || rows > stream::kTileRows ? 4096 : 1024;
  if (rows <= stream::kWideRows || columns <= most_short) return 1;
  const int64_t spans = is_int8 ? int8::kSpans : 1;  // of a chunk
  const int64_t workers = machine::halving_workers(goal.gpu()) / ops::wide_tiles(rows);
  int64_t slices = std::clamp(kRows * workers / outputs, int64_t{1}, kMax);
  while (slices > 1 &&
         columns % (slices * spans * stream::wide_columns(ops::wide_group(outputs * slices, 1, rows))) != 0)
    slices /= 2;
  return slices;
}

// Two workers that have a group together hand each other half of their sums (TaskGraph: partners), and nobody has to add up
// slices behind them.
bool partners_are_quicker(const Goal& goal, const Node& whole, int64_t slices, bool is_int8) {
  const int64_t rows = whole.sizes.at("T"), step = whole.sizes.at("L"), outputs = whole.sizes.at("C") * step,
                columns = whole.sizes.at("K");
  if (!goal.gpu().has_clusters) return false;
  const int group = ops::partners_group(outputs, columns, rows, step, is_int8);
  return group > 0 &&
         ops::wide_cycles_of_partners(outputs, group, columns, rows) <
             ops::wide_cycles_of_slices(outputs, ops::wide_group(outputs * slices, 1, rows), columns, rows, slices);
}

}  // namespace

int split_k(Graph& graph, const Goal& goal) {
  if (!goal.is_gpu()) return 0;
  int times = 0;
  for (size_t at = 0; at < graph.nodes().size(); ++at) {
    const Node whole = graph.nodes()[at];
    if (whole.op->name != "linear_add_rmsnorm_parts") continue;
    const int64_t rows = whole.sizes.at("T"), outputs = whole.sizes.at("C") * whole.sizes.at("L");
    const int64_t columns = whole.sizes.at("K");
    const bool is_int8 = graph.tensor(operand(whole, "weight")).quant_columns > 0;
    const int64_t slices = slices_of(goal, rows, outputs, columns, is_int8);
    if (slices == 1 || partners_are_quicker(goal, whole, slices, is_int8)) continue;
    graph.erase(whole.name);
    const int64_t all = outputs * slices, group = ops::wide_group(all, 1, rows);
    const auto part =
        graph.insert(at, "linear_slices", whole.name + "_part", {operand(whole, "x"), operand(whole, "weight")},
                     {.sizes = {{"S", slices}},
                      .tile = {{"n", ops::wide_busiest(all, group, ops::wide_tiles(rows)) * group}, {"s", 1}},
                      .dtypes = {{"part", DType::f32}}});
    graph.insert(
        at + 1, "sum_slices_rmsnorm_parts", whole.name, {part[0], operand(whole, "residual"), operand(whole, "norm")},
        {.sizes = {{"L", whole.sizes.at("L")}},
         .attributes = whole.attributes,
         .tile = {{"t", rows}},
         .outputs = {
             {"y", operand(whole, "y")}, {"copy", operand(whole, "copy")}, {"squares", operand(whole, "squares")}}});
    graph.remember({"split_k", whole.name, "linear_add_rmsnorm_parts", 0});
    ++times;
  }
  return times;
}

}  // namespace megalith::optimize
