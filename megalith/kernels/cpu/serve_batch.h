// The last task of every iteration of a token loop over tables (next_batch.h) that takes requests while it runs. The host
// commands that one begins in a slot, or is cancelled, and is told each token (runtime/mailbox.h). Slot r has row r of `tokens`,
// and pages of its own that stay as they are when its request ends: so the host may begin another one there behind the tokens
// that both have in common. With nothing to do the task waits for a command in the middle of itself.
#pragma once

#include "megalith/kernels/cpu/next_batch.h"

namespace megalith::kernels {

/// Tells the host.
struct ToldByMail {
  runtime::Mailbox* mailbox;
  const u32* abort;

  void made(i64 request, i64 token, u32 drafts) const { post(runtime::MailKind::token, request, token, drafts); }
  void ended(i64 request, i64 token, batch::FinishReason reason) const {
    post(runtime::MailKind::finished, request, token, static_cast<u32>(reason));
  }

 private:
  void post(runtime::MailKind kind, i64 request, i64 token, u32 reason) const {
    runtime::mailbox_post(mailbox, {static_cast<u32>(request), static_cast<i32>(token), static_cast<u32>(kind), reason},
                          abort);
  }
};
template <class Args>
inline ToldByMail told_by_mail(const Args& a) {
  return {reinterpret_cast<runtime::Mailbox*>(a.mailbox), a.abort};
}

/// Does what the host commands. False if there is no such slot, or no room for the request. Where one begins 1 stands in
/// kSlotMatch, until its prompt is copied.
template <class Args>
inline bool take_serve_command(const Args& a, const runtime::Command& command) {
  using Checks = typename Args::Checks;
  if (command.kind == static_cast<u32>(runtime::CommandKind::end)) {
    batch_state(a)[kIsEnding] = 1;
    return true;
  }
  const i64 r = command.request;
  if (!is_inside(a.faults, r, min(i64(a.R), i64(a.N)), Checks::slots)) return false;
  if (command.kind == static_cast<u32>(runtime::CommandKind::cancel)) {
    if (of_slot(a, kSlotRequest, r) < 0) return true;  // it has ended meanwhile
    of_slot(a, kSlotRequest, r) = -1;
    of_slot(a, kSlotMatch, r) = 0;
    told_by_mail(a).ended(r, -1, batch::kCancelled);
    return true;
  }
  const i64 step = command.fields[runtime::kServeStep], prompt = command.fields[runtime::kServePrompt],
            limit = command.fields[runtime::kServeLimit];
  if (!is_inside(a.faults, limit, a.W / a.N + 1, Checks::tokens) ||
      !is_inside(a.faults, prompt, limit, Checks::tokens) || !is_inside(a.faults, step, prompt, Checks::step))
    return false;
  of_slot(a, kSlotRequest, r) = static_cast<i32>(r);
  of_slot(a, kSlotPrompt, r) = static_cast<i32>(prompt);
  of_slot(a, kSlotLimit, r) = static_cast<i32>(limit);
  of_slot(a, kSlotMatch, r) = 1;
  a.step[r] = static_cast<i32>(step);
  return true;
}

/// All commands that are there, up to where.
struct ServedCommands {
  u32 end;
  bool are_sound;
};
template <class Args>
inline ServedCommands take_serve_commands(const Args& a) {
  runtime::Mailbox* const mailbox = told_by_mail(a).mailbox;
  const runtime::CommandRange range = runtime::commands_seen(mailbox);
  ServedCommands taken = {range.end, true};
  runtime::commands_take(mailbox, range, [&](const runtime::Command& command) {
    taken.are_sound = taken.are_sound && take_serve_command(a, command);
  });
  return taken;
}

template <class Args>
inline bool has_new_prompt(const Args& a, i64 r) {
  return of_slot(a, kSlotMatch, r) != 0;
}
/// Whether there is nothing to do, and there may be.
template <class Args>
inline bool is_idle(const Args& a) {
  return num_live(a) == 0 && batch_state(a)[kIsEnding] == 0;
}

/// The body of the operator `serve_batch`.
template <class Args>
inline void serve_batch(const Args& a) {
  const ToldByMail told = told_by_mail(a);
  if (!take_in_batch(a, told)) return;
  for (;;) {
    const ServedCommands taken = take_serve_commands(a);
    if (!taken.are_sound) return;
    const i64 text = a.W / a.N;
    for (i64 r = 0; r < a.R; ++r) {
      if (!has_new_prompt(a, r)) continue;
      for (i64 s = r * text; s < r * text + of_slot(a, kSlotPrompt, r); ++s) a.tokens[s] = a.inbox[s];
      of_slot(a, kSlotMatch, r) = 0;
    }
    if (!is_idle(a)) break;
    if (!runtime::commands_wait(told.mailbox, taken.end, a.abort)) return;
  }
  find_matches(a);
  lay_out_batch(a);
}

}  // namespace megalith::kernels
