#include "megalith/runtime/cuda/streams.h"

#include <algorithm>
#include <map>

#include "megalith/base/error.h"
#include "megalith/kernels/gemm_layout.h"
#include "megalith/kernels/int8_layout.h"
#include "megalith/kernels/l2_layout.h"

namespace megalith::runtime {

namespace {

using task::StreamPart;
using task::WeightStream;

class Expansion {
 public:
  explicit Expansion(const task::TaskGraph& tasks) : tasks_(tasks) {
    plan_.first_chunks.assign(tasks.tasks.size(), 0);
    plan_.totals = task::stream_totals(tasks);
    for (size_t b = 0; b < tasks.buffers.size(); ++b)
      if (const int64_t pieces = plan_.totals.pieces[b]; pieces > 0)
        plan_.records[static_cast<int>(b)].reserve(static_cast<size_t>(pieces));
  }

  StreamPlan run() {
    for (const std::vector<int>& list : tasks_.workers) {
      Stream stream = {chunk_, 0, 0, plan_.runs.size()};
      for (int t : list) {
        const task::Task& task = tasks_.tasks[static_cast<size_t>(t)];
        plan_.first_chunks[static_cast<size_t>(t)] = static_cast<u32>(stream.num_chunks);
        if (!task.stream) continue;
        MEGALITH_ASSERT(stream.num_chunks == static_cast<u64>(task.stream->first_chunk),
                        "[streams] task \"{}\" begins at chunk {}, want {}", task.name, stream.num_chunks,
                        task.stream->first_chunk);
        const WeightStream& of_node = *task::find_stream(tasks_.streams, task.node);
        const auto [there, is_new] = packed_.try_emplace(task::part_key(of_node, *task.stream), chunk_);
        if (is_new) add_part(of_node, *task.stream);
        add_run(stream, there->second, static_cast<u64>(task::num_chunks(of_node, *task.stream)));
      }
      if (stream.num_chunks == 0) plan_.runs.push_back({stream.first, 0});
      plan_.streams.push_back(stream);
    }
    MEGALITH_ASSERT(chunk_ == plan_.num_chunks(), "[streams] {} chunks, want {}", chunk_, plan_.num_chunks());
    return std::move(plan_);
  }

 private:
  // `count` chunks from `first` of all on, behind those that the stream has.
  void add_run(Stream& stream, u64 first, u64 count) {
    const u64 base = first - stream.num_chunks, end = stream.num_chunks + count;
    if (stream.num_chunks > 0 && plan_.runs.back().base == base)
      plan_.runs.back().end = end;
    else
      plan_.runs.push_back({base, end});
    if (stream.num_chunks == 0) stream.first = first;
    stream.num_chunks = end;
  }

  void add_part(const WeightStream& stream, const StreamPart& part) {
    const stream::Order& order = stream.order;
    const size_t matrices = stream.matrices.size();
    const task::Buffer& matrix_buffer = tasks_.buffers[static_cast<size_t>(stream.matrices.front())];
    const int64_t columns = matrix_buffer.shape[1];
    auto add = [&](size_t matrix, u64 at, int64_t row, int64_t chunk) {
      plan_.records[stream.matrices[matrix]].push_back(
          {.weights = nullptr,
           .chunk = at,
           .columns = static_cast<u64>(columns),
           .first_row = static_cast<u64>(row),
           .num_rows = static_cast<u32>(std::min<int64_t>(order.group, part.row_end - row)),
           .column_chunk = static_cast<u32>(part.column_chunk + chunk),
           .slices = static_cast<u32>(order.slices),
           .group = static_cast<u32>(order.group),
           .matrix = static_cast<u32>(matrix),
           .matrices = static_cast<u32>(matrices),
           .quant_columns = static_cast<u32>(stream.quant_columns),
           .is_f16 = matrix_buffer.dtype == DType::f16,
           .scales = nullptr});
    };
    // As kernels/cuda/mainloop/gemm_wgmma.cuh takes them, all matrices in a chunk; then as gemv.cuh does.
    if (order.slices == 0) {
      for (int64_t row = part.row_begin; row < part.row_end;) {
        const int64_t left = (part.row_end - row + order.group - 1) / order.group;
        const int n_parallel = stream::wide_turn(static_cast<int>(left), static_cast<int>(order.turn));
        for (int64_t chunk = 0; chunk < order.chunks; ++chunk)
          for (int i = 0; i < n_parallel; ++i, ++chunk_)
            for (size_t matrix = 0; matrix < matrices; ++matrix) add(matrix, chunk_, row + i * order.group, chunk);
        row += n_parallel * order.group;
      }
      return;
    }
    const int64_t turn = order.turn > 0 ? order.turn * order.group : part.row_end - part.row_begin;
    for (int64_t first = part.row_begin; first < part.row_end; first += turn)
      for (int64_t begin = 0; begin < order.chunks; begin += order.part)
        for (int64_t row = first; row < std::min(first + turn, part.row_end); row += order.group)
          for (size_t matrix = 0; matrix < matrices; ++matrix)
            for (int64_t chunk = begin; chunk < std::min<int64_t>(begin + order.part, order.chunks); ++chunk)
              add(matrix, chunk_++, row, chunk);
  }

  const task::TaskGraph& tasks_;
  u64 chunk_ = 0;                             // of all that are packed, one behind the other
  std::map<task::PartKey, u64> packed_ = {};  // the first one of a part
  StreamPlan plan_;
};

}  // namespace

bool StreamPlan::is_shared() const {
  u64 taken = 0;
  for (const Stream& stream : streams) taken += stream.num_chunks;
  return taken > num_chunks();
}

u64 StreamPlan::num_blocks() const {
  u64 blocks = 0;
  for (size_t w = 0; w + 1 < streams.size(); w += 2)
    blocks += std::max(streams[w].num_chunks, streams[w + 1].num_chunks);
  return blocks;
}

StreamPlan plan_streams(const task::TaskGraph& tasks) { return Expansion(tasks).run(); }

std::vector<u32> deal_to_sides(StreamPlan& plan, const SideMap& sides) {
  constexpr u64 kChunksOfWord = stream::kChunksOfWord;
  MEGALITH_ASSERT(!plan.is_shared(), "[streams] chunks that several workers take are on no side of the L2");
  MEGALITH_ASSERT(plan.streams.size() % 2 == 0, "[streams] {} workers are no pairs", plan.streams.size());
  std::vector<u32> sizes(plan.num_chunks());
  for (const auto& [matrix, records] : plan.records)
    for (const stream::PackRecord& record : records)
      if (record.slices == 0)
        sizes[record.chunk] = static_cast<u32>(stream::chunk_size(static_cast<int>(record.group * record.matrices)));
  std::vector<u32> kinds;
  std::vector<u64> places(plan.num_chunks());  // by chunk
  u64 block = 0;
  for (size_t w = 0; w < plan.streams.size(); ++w) {
    Stream& mine = plan.streams[w];
    const u64 first_chunk = mine.first;
    mine.first = block;
    mine.first_bits = kinds.size();
    kinds.resize(kinds.size() + (mine.num_chunks + kChunksOfWord - 1) / kChunksOfWord);
    for (u64 c = 0; c < mine.num_chunks; ++c) {
      const u64 half = sides.of_block((block + c) * stream::kBlockBytes) ^ (w % 2);
      const u64 kind = half + 2 * sizes[first_chunk + c];
      kinds[mine.first_bits + c / kChunksOfWord] |= static_cast<u32>(kind << c % kChunksOfWord * stream::kKindBits);
      places[first_chunk + c] = (block + c) * 2 + half;
    }
    if (w % 2 == 1) block += std::max(mine.num_chunks, plan.streams[w - 1].num_chunks);
  }
  for (auto& [matrix, records] : plan.records)
    for (stream::PackRecord& record : records) record.chunk = places[record.chunk];
  return kinds;
}

}  // namespace megalith::runtime
