// The end of an iteration of a token loop that takes requests while it runs, on a GPU: the CPU's steps
// (kernels/cpu/serve_batch.h), by one thread of the block. Prompts come from the host's memory, by all of them.
#pragma once

#include "megalith/kernels/cpu/serve_batch.h"
#include "megalith/kernels/cuda/scheduler/next_batch.cuh"

namespace megalith::kernels {

/// The body of `serve_batch`.
template <class Args>
inline void serve_batch_by_block(const Args& args) {
  NextBatchArea& area = next_batch_area();
  const ToldByMail told = told_by_mail(args);
  if (thread() == 0) area.is_sound = load_relaxed(args.abort) == 0 && take_in_batch(args, told) ? 1 : 0;
  u32 end = 0;  // of the commands that thread 0 has taken
  do {
    if (thread() == 0 && area.is_sound != 0) {
      const ServedCommands taken = take_serve_commands(args);
      area.is_sound = taken.are_sound ? 1 : 0;
      end = taken.end;
    }
    block_sync();
    if (area.is_sound == 0) return;
    const i64 text = args.W / args.N;
    const u32* const inbox = reinterpret_cast<const u32*>(args.inbox);
#pragma unroll 1
    for (i64 r = 0; r < args.R; ++r) {
      if (!has_new_prompt(args, r)) continue;
      const i64 prompt = of_slot(args, kSlotPrompt, r);
      for (i64 s = thread(); s < prompt; s += kThreads)
        args.tokens[r * text + s] = static_cast<i32>(load_relaxed(inbox + r * text + s));
    }
    block_sync();  // prompts are there, and all have looked at where they begin
    if (thread() == 0) {
      for (i64 r = 0; r < args.R; ++r) of_slot(args, kSlotMatch, r) = 0;
      area.is_idle = is_idle(args) ? 1 : 0;
      if (area.is_idle != 0 && !runtime::commands_wait(told.mailbox, end, args.abort)) area.is_sound = 0;
    }
    block_sync();
  } while (area.is_idle != 0);
  find_matches_by_block(args, area);
  if (thread() == 0) lay_out_batch(args);
}

}  // namespace megalith::kernels
