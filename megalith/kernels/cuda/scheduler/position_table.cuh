// Where the rows of an iteration stand, kept where every task of the iteration finds it: a look into device memory
// takes as long as the attention of a short text.
#pragma once

#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"
#include "megalith/kernels/stream_limits.h"

namespace megalith::kernels {

/// Who works on more rows looks at positions in the cache alone, not at where a row's began (attention.cuh).
inline constexpr i64 kStartRows = kWorkerConfig.table_rows > 128 ? 1 : kWorkerConfig.table_rows;
struct RowTable {
  const i32 *position_at, *request_at, *start_at;  // whose rows they are,
  u32 epoch;                                       // as of when; 0: nobody's
  int position[kWorkerConfig.table_rows], start[kStartRows];
  u16 request[kWorkerConfig.table_rows];
};
inline RowTable& row_table() { return shared_variable<RowTable, place::kRows, place::kAttended>(); }

/// As many positions of a request as the cache has a place for and the tables of angles a row.
template <class Args>
constexpr int cached_positions() {
  constexpr i64 kPlaces = Args::Q * Args::B;
  return static_cast<int>(Args::S < kPlaces ? Args::S : kPlaces);
}

/// The table is that of the task's rows, and nothing in it leads outside, when this returns. All threads of the block
/// call it, at the start of a task.
template <class Args>
inline void look_up_rows(const Args& args) {
  constexpr bool kHasStart = requires { args.start; };
  bool is_there = row_table().epoch == args.epoch.value && row_table().position_at == args.position &&
                  row_table().request_at == args.request;
  if constexpr (kHasStart) is_there = is_there && row_table().start_at == args.start;
  if (is_there) return;
  const auto look_up = [&](int row) {
    using Checks = typename Args::Checks;
    constexpr int S = kHasStart ? static_cast<int>(Args::S) : cached_positions<Args>(),
                  R = static_cast<int>(Args::R_largest);
    const int position = args.position[row], request = args.request[row];
    row_table().position[row] = inside_of_row(args, row, position, S, Checks::position);
    static_assert(R <= 65536 && (!kHasStart || Args::T_largest <= kStartRows));
    row_table().request[row] = static_cast<u16>(inside_of_row(args, row, request, R, Checks::request));
    if constexpr (kHasStart)
      row_table().start[row] = inside_of_row(args, row, args.start[row], cached_positions<Args>() + 1, Checks::start);
  };
  if constexpr (Args::T_largest <= kThreads) {
    if (thread() < Args::T_largest) look_up(thread());
  } else {
#pragma unroll 1
    for (int row = thread(); row < Args::T_largest; row += kThreads) look_up(row);
  }
  block_sync();  // by now all have seen that it was another's
  if (thread() == 0) {
    row_table().position_at = args.position;
    row_table().request_at = args.request;
    row_table().start_at = nullptr;
    if constexpr (kHasStart) row_table().start_at = args.start;
    row_table().epoch = args.epoch.value;
  }
}

}  // namespace megalith::kernels
