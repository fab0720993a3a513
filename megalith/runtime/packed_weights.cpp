#include "megalith/runtime/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/log.h"
#include "megalith/base/progress.h"
#include "megalith/base/threads.h"
#include "megalith/kernels/panel_layout.h"
#include "megalith/optimize/layout.h"

namespace megalith::runtime {

namespace {

// A thread takes so many bytes at a time: a few huge pages, so that what it releases are whole ones.
constexpr int64_t kPieceBytes = 8 << 20;
constexpr int64_t kAlignment = 4096;

struct Piece {
  const graph::Tensor* tensor;
  std::byte* to;
  const std::byte* from;
  int64_t row, num_rows;
};

template <int Together, class Element>
void pack_panels(std::byte* to, const std::byte* from, int64_t columns, int64_t row, int64_t num_rows) {
  const auto* source = reinterpret_cast<const Element*>(from) + row * columns;
  auto* panel = reinterpret_cast<Element*>(to) + panel::index(row, 0, columns, Together);
  for (; num_rows > 0; num_rows -= panel::kRows) {
    panel::pack<Together>(panel, source, std::min<int64_t>(num_rows, panel::kRows), columns);
    panel += panel::panel_elements(columns, Together);
    source += panel::kRows * columns;
  }
}

int64_t row_bytes(const graph::Tensor& tensor) { return tensor.shape[1].size * dtype_bytes(tensor.dtype); }

std::vector<Piece> pieces_of(const graph::Tensor& tensor, std::byte* to, const std::byte* from) {
  const int64_t step = std::max<int64_t>(1, kPieceBytes / (row_bytes(tensor) * panel::kRows)) * panel::kRows;
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < tensor.shape[0].size; row += step)
    pieces.push_back({&tensor, to, from, row, std::min(step, tensor.shape[0].size - row)});
  return pieces;
}

void pack_all(const std::vector<Piece>& pieces, const PackOptions& options, Progress& progress) {
  for_each_index(pieces.size(), options.num_threads, [&](size_t i, const std::atomic<bool>&) {
    const Piece& piece = pieces[i];
    const int64_t bytes = piece.num_rows * row_bytes(*piece.tensor);
    pack_rows(*piece.tensor, piece.to, piece.from, piece.row, piece.num_rows);
    if (options.release) options.release(piece.from + piece.row * row_bytes(*piece.tensor), bytes);
    progress.advance(bytes);
  });
}

}  // namespace

int64_t packed_bytes(const graph::Tensor& tensor) {
  return panel::elements(tensor.shape[0].size, tensor.shape[1].size, optimize::panel_columns(tensor.dtype)) *
         dtype_bytes(tensor.dtype);
}

void pack_rows(const graph::Tensor& tensor, std::byte* to, const std::byte* from, int64_t row, int64_t num_rows) {
  const int64_t columns = tensor.shape[1].size;
  switch (tensor.dtype) {
    case DType::bf16: return pack_panels<panel::kPair, uint16_t>(to, from, columns, row, num_rows);
    case DType::f16: return pack_panels<panel::kSingle, uint16_t>(to, from, columns, row, num_rows);
    case DType::f32: return pack_panels<panel::kSingle, uint32_t>(to, from, columns, row, num_rows);
    case DType::i8: return pack_panels<panel::kQuad, uint8_t>(to, from, columns, row, num_rows);
    default: break;
  }
  throw InternalError(
      fmt::format("[pack] \"{}\" is {}, which no body reads in panels", tensor.name, dtype_name(tensor.dtype)));
}

PackedWeights::PackedWeights(const graph::Graph& graph, const graph::Schedule& schedule,
                             const std::map<std::string, void*>& memory, const PackOptions& options) {
  int64_t bytes = 0, total = 0;
  std::vector<graph::TensorId> order;
  for (const graph::Node& node : graph.nodes())
    for (const graph::TensorId operand : node.operands) {
      if (schedule.layout(operand) != graph::Layout::panels || !offsets_.emplace(operand, bytes).second) continue;
      order.push_back(operand);
      total += graph.tensor(operand).bytes();
      bytes += (packed_bytes(graph.tensor(operand)) + kAlignment - 1) / kAlignment * kAlignment;
    }
  if (order.empty()) return;
  mapping_ = Mapping(bytes, "packed weights");
  std::vector<Piece> pieces;
  for (const graph::TensorId id : order) {
    const graph::Tensor& tensor = graph.tensor(id);
    const auto found = memory.find(tensor.name);
    MEGALITH_CHECK(found != memory.end() && found->second, "the constant \"{}\" has no memory", tensor.name);
    std::ranges::copy(
        pieces_of(tensor, mapping_.data() + offsets_.at(id), static_cast<const std::byte*>(found->second)),
        std::back_inserter(pieces));
  }
  Progress progress("packing weights", total, ProgressUnit::bytes);
  const auto start = std::chrono::steady_clock::now();
  pack_all(pieces, options, progress);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  log_info("[pack] {} of weights in {:.0f} ms", format_bytes(total), elapsed.count());
}

}  // namespace megalith::runtime
