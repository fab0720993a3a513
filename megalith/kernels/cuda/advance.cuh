// The end of an iteration on a GPU: the steps of kernels/cpu/advance.h, taken by one thread on a copy of the batch
// block in shared memory. The block fetches it and writes it back, since a look into device memory takes longer than
// all the rest. What the host wants to know goes to its memory together: a warp of its own looks meanwhile whether
// there is room, and the herald says that there is mail when it has told the other workers.
#pragma once

#include "megalith/kernels/advance_layout.h"
#include "megalith/kernels/cpu/advance.h"
#include "megalith/kernels/cuda/ring.cuh"

namespace megalith::kernels {

/// The batch block but for the texts, which stay where they are.
struct AdvanceCopy {
  i32 requests[advance::kMostRequests * batch::kRequestFields];
  i32 token[advance::kMostRequests], sample_row[advance::kMostRequests], sample_request[advance::kMostRequests];
  f32 logprob[advance::kMostRequests];
  i32 row_request[advance::kMostRows], row_position[advance::kMostRows], row_start[advance::kMostRows];
  i32 stop_tokens[advance::kMostStopTokens], counts[batch::kCountFields], num_records;
  alignas(16) runtime::MailRecord records[2 * advance::kMostRequests];
};

/// The same under the names that kernels/cpu/advance.h knows.
template <class Args>
struct AdvanceView {
  static constexpr i64 N = Args::N, S = Args::S, E = Args::E, T_largest = Args::T_largest;
  i32 *requests, *history, *counts, *row_request, *row_position, *row_start, *sample_row, *sample_request;
  const i32* stop_tokens;
};

template <class Args>
inline void advance_by_block(const Args& args) {
  static_assert(Args::N <= advance::kMostRequests && Args::R_largest <= Args::N &&
                Args::T_largest <= advance::kMostRows && Args::E <= advance::kMostStopTokens);
  static_assert(sizeof(AdvanceCopy) <= advance::area_bytes());
  AdvanceCopy& copy = *reinterpret_cast<AdvanceCopy*>(shared_area());
  constexpr int N = static_cast<int>(Args::N), E = static_cast<int>(Args::E);
  const int samples = static_cast<int>(args.R);
  constexpr int kOthers = kThreads - kWarpLanes;  // all warps but the last
  const auto each = [](int count, auto action) {
    for (int i = thread(); i < count; i += kOthers) action(i);
  };
  const auto others_sync = [] { part_sync(0, kOthers); };
  runtime::Mailbox* const mailbox = reinterpret_cast<runtime::Mailbox*>(args.mailbox);
  // After an abort there is nothing to take in: what came here may be anything (runtime/cuda/worker.cuh).
  __shared__ u32 is_over, has_room, first_record;
  if (warp() == kWarps - 1) {
    // A token and the end of a text each.
    if (lane() == 0) {
      first_record = next_mail().is_known != 0 ? next_mail().record : load_relaxed(&mailbox->head);
      has_room = runtime::mailbox_reserve(mailbox, first_record, static_cast<u32>(2 * samples), args.abort) ? 1 : 0;
    }
  } else {
    each(N * batch::kRequestFields, [&](int i) { copy.requests[i] = args.requests[i]; });
    // All there is room for, without a look at how many there are.
    each(static_cast<int>(Args::R_largest), [&](int i) {
      copy.token[i] = args.token[i];
      copy.logprob[i] = args.logprob[i];
      copy.sample_request[i] = args.sample_request[i];
    });
    each(E, [&](int i) { copy.stop_tokens[i] = args.stop_tokens[i]; });
    if (thread() == 0) is_over = load_relaxed(args.abort);
    others_sync();
    if (thread() == 0 && is_over == 0) {
      const AdvanceView<Args> view = {copy.requests,    args.history,        copy.counts,
                                      copy.row_request, copy.row_position,   copy.row_start,
                                      copy.sample_row,  copy.sample_request, copy.stop_tokens};
      int num_records = 0;
      for (int r = 0; r < samples; ++r)
        take_in(view, copy.sample_request[r], copy.token[r], copy.logprob[r],
                [&](const runtime::MailRecord& record) { copy.records[num_records++] = record; });
      copy.num_records = num_records;
      plan_rows(view);
    }
    others_sync();
    const int rows = is_over != 0 ? 0 : copy.counts[batch::kRows];
    if (is_over == 0) each(N * batch::kRequestFields, [&](int i) { args.requests[i] = copy.requests[i]; });
    each(rows, [&](int i) {
      args.row_request[i] = copy.row_request[i];
      args.row_position[i] = copy.row_position[i];
      args.row_start[i] = copy.row_start[i];
      const int request = copy.row_request[i], position = copy.row_position[i];
      // A token that was just taken in is on its way to the text: of a few it is found sooner here.
      constexpr int kFew = 4;
      int taken = -1;
      if (samples <= kFew && position == copy.requests[request * batch::kRequestFields + batch::kLength] - 1)
        for (int r = 0; r < samples; ++r)
          if (copy.sample_request[r] == request) taken = copy.token[r];
      args.row_token[i] = taken >= 0 ? taken : args.history[i64(request) * Args::S + position];
    });
    each(is_over != 0 ? 0 : copy.counts[batch::kSamples], [&](int i) {
      args.sample_row[i] = copy.sample_row[i];
      args.sample_request[i] = copy.sample_request[i];
    });
    if (thread() == 0 && is_over == 0) {
      args.counts[batch::kRows] = rows;
      args.counts[batch::kSamples] = copy.counts[batch::kSamples];
      args.stop[0] = rows > 0 ? 0 : 1;
    }
  }
  block_sync();
  if (is_over != 0 || has_room == 0) return;
  const int num_records = copy.num_records;
  each(num_records,
       [&](int i) { runtime::mailbox_write(mailbox, first_record + static_cast<u32>(i), copy.records[i]); });
  if (thread() != 0 || num_records == 0) return;
  next_mail() = {1, first_record + static_cast<u32>(num_records)};
  args.task->mail = mailbox;
  args.task->mail_head = next_mail().record;
}

}  // namespace megalith::kernels
