// A draft model's part of an iteration (kernels/cpu/draft_model.h) by a block. Bookkeeping is one thread's; but a look into device
// memory takes longer than all of that, so the block brings what it looks at into shared memory, and takes from there what it has
// made.
#pragma once

#include "megalith/kernels/cpu/draft_model.h"
#include "megalith/kernels/cuda/common/prelude.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"

namespace megalith::kernels {

/// Copies of what draft_rows() reads and writes, but for tokens.
template <class Args>
struct DraftRowsCopy {
  i32 requests[Args::N * batch::kRequestFields];
  i32 row_request[Args::T_largest], row_position[Args::T_largest], row_start[Args::T_largest];
  i32 draft_request[Args::D_largest], draft_position[Args::D_largest], draft_start[Args::D_largest];
  i32 last_row[Args::N], drafter[Args::N], drafter_row[Args::B_largest];
  i32 draft_counts[Args::C];
};
/// The same under the names that kernels/cpu/draft_model.h knows.
template <class Args>
struct DraftRowsView {
  using Checks = typename Args::Checks;
  static constexpr i64 N = Args::N, S = Args::S, C = Args::C, D_largest = Args::D_largest;
  i64 T;
  FaultNote faults;
  const i32 *requests, *row_request, *row_position, *row_start;
  i32 *draft_request, *draft_position, *draft_start, *last_row, *drafter, *drafter_row, *draft_counts;
};

/// By all threads of the block: `count` values.
inline void copy_by_block(i32* to, const i32* from, i64 count) {
  for (i64 i = thread(); i < count; i += kThreads) to[i] = from[i];
}

template <class Args>
inline void draft_rows_by_block(const Args& args) {
  DraftRowsCopy<Args>& copy = *reinterpret_cast<DraftRowsCopy<Args>*>(shared_area());
  static_assert(sizeof(copy) <= kWorkerConfig.area_bytes);
  copy_by_block(copy.requests, args.requests, Args::N * batch::kRequestFields);
  copy_by_block(copy.row_request, args.row_request, args.T);
  copy_by_block(copy.row_position, args.row_position, args.T);
  copy_by_block(copy.row_start, args.row_start, args.T);
  copy_by_block(copy.last_row, args.last_row, Args::N);
  copy_by_block(copy.drafter, args.drafter, Args::N);
  copy_by_block(copy.drafter_row, args.drafter_row, Args::B_largest);
  block_sync();
  if (thread() == 0)
    lay_out_draft_rows(DraftRowsView<Args>{args.T, args.faults, copy.requests, copy.row_request, copy.row_position,
                                           copy.row_start, copy.draft_request, copy.draft_position, copy.draft_start,
                                           copy.last_row, copy.drafter, copy.drafter_row, copy.draft_counts});
  block_sync();
  const i64 rows = copy.draft_counts[0];
  for (i64 r = thread(); r < rows; r += kThreads) {
    args.draft_token[r] = known_draft_token(args, copy.draft_request[r], copy.draft_position[r]);
    args.draft_request[r] = copy.draft_request[r];
    args.draft_position[r] = copy.draft_position[r];
    args.draft_start[r] = copy.draft_start[r];
  }
  copy_by_block(args.last_row, copy.last_row, Args::N);
  copy_by_block(args.drafter, copy.drafter, Args::N);
  copy_by_block(args.drafter_row, copy.drafter_row, Args::B_largest);
  copy_by_block(args.draft_counts, copy.draft_counts, Args::C);
}

template <class Args>
inline void draft_token_by_block(const Args& args) {
  MadeDraft* const made = reinterpret_cast<MadeDraft*>(shared_area());
  static_assert(Args::B_largest * sizeof(MadeDraft) <= kWorkerConfig.area_bytes);
  for (i64 i = thread(); i < args.B; i += kThreads) made[i] = put_draft(args, i);
  block_sync();
  for (i64 r = thread(); r < args.T; r += kThreads) {
    const i32 request = args.row_request[r], position = args.row_position[r];
    for (i64 i = 0; i < args.B; ++i)
      if (made[i].request == request && made[i].position == position) args.row_token[r] = made[i].token;
  }
}

}  // namespace megalith::kernels
