// Advance: the last task of every iteration and the only one that changes the batch block (runtime/batch.h). It takes
// in the sampled tokens, posts them to the host, ends requests, takes the host's commands, and lays out the next
// iteration's rows, unless that is another kernel's. Those of a kernel's first one the host lays out
// (runtime/first_rows.h).
//
// Rows are given out so that nobody starves: every active request gets one row first (a decode step, or the next token
// of its prompt), then prompts get what is left, in order. Where they stand says row_order.h. A request is sampled when its
// last known token is among its rows; behind each row if it wants to know how likely its prompt is (known_tokens.h).
#pragma once

#include "megalith/kernels/cpu/check.h"
#include "megalith/kernels/cpu/prelude.h"
#include "megalith/kernels/cpu/stops.h"
#include "megalith/kernels/drafts.h"
#include "megalith/kernels/known_tokens.h"
#include "megalith/kernels/row_order.h"
#include "megalith/runtime/batch.h"
#include "megalith/runtime/mailbox.h"

namespace megalith::kernels {

/// Whether a token ends the request.
template <class Args>
inline bool is_stop_token(const Args& a, i64 request, const i32* fields, i32 token) {
  const StopPlaces places = stop_places(a, fields);
  for (i64 place = places.begin; place < places.end; ++place)
    if (stop_token_at(a, request, place) == token) return true;
  return false;
}

/// Posts the top tokens of sample r, if its request wants some; a block of a GPU does so itself.
template <class Args, class Post>
inline void post_top_tokens(const Args& a, i64 r, const i32* fields, Post post) {
  if constexpr (requires { a.top_token; })
    for (i64 i = 0; i < batch::top_tokens_of(fields[batch::kFlags]); ++i) {
      const i64 at = r * batch::kMaxTop + i;
      post(runtime::MailRecord{static_cast<u32>(a.sample_request[r]), a.top_token[at],
                               static_cast<u32>(runtime::MailKind::top), 0, a.top_logprob[at]});
    }
}

/// Appends the token of sample r to its request; ends the request when the text is complete. `post(record)` for each thing
/// that the host wants to know, `drafts` among it (MailRecord::reason). False if there is no such request, or no room for its
/// token.
template <class Args, class Post>
inline bool take_in(const Args& a, i64 r, u32 drafts, Post post) {
  const i32 request = a.sample_request[r], token = a.token[r];
  if (!is_inside(a.faults, request, a.N, Args::Checks::sample_request)) return false;
  i32* fields = a.requests + static_cast<i64>(request) * batch::kRequestFields;
  if (!is_inside(a.faults, fields[batch::kLength], a.S, Args::Checks::requests)) return false;
  a.history[static_cast<i64>(request) * a.S + fields[batch::kLength]] = token;
  ++fields[batch::kLength];
  fields[batch::kLast] = token;
  const u32 id = static_cast<u32>(request);
  post_top_tokens(a, r, fields, post);
  post(runtime::MailRecord{id, token, static_cast<u32>(runtime::MailKind::token), drafts, a.logprob[r]});
  if (is_stop_token(a, request, fields, token))
    fields[batch::kReason] = batch::kStopToken;
  else if (fields[batch::kLength] >= fields[batch::kLimit])
    fields[batch::kReason] = batch::kLengthLimit;
  else
    return true;
  fields[batch::kState] = batch::kFinished;
  post(runtime::MailRecord{id, token, static_cast<u32>(runtime::MailKind::finished),
                           static_cast<u32>(fields[batch::kReason])});
  return true;
}

/// Posts those samples of a request, the ones from r to `end`, whose tokens are known, which come first; how many they are.
template <class Args, class Post>
inline i64 tell_known(const Args& a, i64 r, i64 end, Post post) {
  const i32 request = a.sample_request[r];
  if (request < 0 || request >= a.N) return 0;  // take_in() notes it
  const i32* const fields = a.requests + static_cast<i64>(request) * batch::kRequestFields;
  const i64 first = r;
  for (; r < end && is_known(fields, length_behind_row(a, r, end, fields)); ++r) {
    post_top_tokens(a, r, fields, post);
    post(runtime::MailRecord{static_cast<u32>(request), a.token[r], static_cast<u32>(runtime::MailKind::prompt), 0,
                             a.logprob[r]});
  }
  return r - first;
}

/// The draft behind a request's last token that nobody worked on; -1 if there is none.
template <class Args>
inline i32 guessed_token(const Args& a, i32 request) {
  if (request < 0 || request >= a.N) return -1;  // take_in() notes it
  const i32* const fields = a.requests + static_cast<i64>(request) * batch::kRequestFields;
  const i32 length = fields[batch::kLength];
  if ((fields[batch::kFlags] & batch::kGuessed) == 0 || length < 0 || length >= a.S) return -1;
  // Another worker may have written it.
  return static_cast<i32>(runtime::load_relaxed(reinterpret_cast<const u32*>(a.history + request * a.S + length)));
}

/// The samples of a request from number r to `end`, which are to be taken in: its next token and, as long as a draft is what was
/// sampled before it, the one behind that. False as take_in().
template <class Args, class Post>
inline bool take_in_request(const Args& a, i64 r, i64 end, Post post) {
  const i32 request = a.sample_request[r], drafts = static_cast<i32>(end - r - 1);
  i32 guessed = -1;
  if constexpr (Drafting<Args>::kIsOn) guessed = guessed_token(a, request);
  if (!take_in(a, r, static_cast<u32>(drafts), post)) return false;
  if constexpr (Drafting<Args>::kIsOn) {
    const i64 first = r;
    i32* const fields = a.requests + static_cast<i64>(request) * batch::kRequestFields;
    while (++r < end && fields[batch::kState] == batch::kActive) {
      const i32 row = a.sample_row[r];
      if (!is_inside(a.faults, row, a.R_largest, Args::Checks::sample_request)) return false;
      if (a.row_token[row] != a.token[r - 1]) break;
      if (!take_in(a, r, runtime::kAccepted, post)) return false;
    }
    if (fields[batch::kDone] >= fields[batch::kLength]) fields[batch::kDone] = fields[batch::kLength] - 1;
    fields[batch::kFlags] &= ~batch::kGuessed;
    if (fields[batch::kState] != batch::kActive) return true;
    if (drafts > 0) Drafting<Args>::note(fields, drafts, static_cast<i32>(r - 1 - first));
    if (guessed >= 0) Drafting<Args>::note(fields, 1, a.token[first] == guessed);
  }
  return true;
}

/// Does what the host commands: a request begins, or one that has not ended is cancelled or may become longer. False if it
/// has no such place.
template <class Args, class Post>
inline bool take_command(const Args& a, const runtime::Command& command, Post post) {
  static_assert(runtime::Command::kFields == batch::kRequestFields);
  if (!is_inside(a.faults, command.request, a.N, Args::Checks::requests)) return false;
  i32* const fields = a.requests + static_cast<i64>(command.request) * batch::kRequestFields;
  if (command.kind == static_cast<u32>(runtime::CommandKind::begin)) {
    for (int f = 0; f < batch::kRequestFields; ++f) fields[f] = command.fields[f];
  } else if (fields[batch::kState] != batch::kActive) {
    return true;  // it has ended meanwhile
  } else if (command.kind == static_cast<u32>(runtime::CommandKind::extend)) {
    fields[batch::kLimit] = command.fields[batch::kLimit];
  } else {
    fields[batch::kState] = batch::kFinished;
    fields[batch::kReason] = batch::kCancelled;
    post(runtime::MailRecord{command.request, fields[batch::kLast], static_cast<u32>(runtime::MailKind::finished),
                             static_cast<u32>(batch::kCancelled)});
  }
  return true;
}

/// Whether the rows of a request that is active lie within its text.
template <class Args>
inline bool is_sound_request(const Args& a, const i32* fields) {
  return is_inside(a.faults, fields[batch::kLength], a.S + 1, Args::Checks::requests) &&
         is_inside(a.faults, fields[batch::kDone], fields[batch::kLength], Args::Checks::requests);
}

/// Tokens that wait to be worked through, as waiting_rows() counts them; -1 if a request's are not sound.
template <class Args>
inline i64 waiting_tokens(const Args& a) {
  i64 waiting = 0;
  for (i64 n = 0; n < a.N; ++n) {
    const i32* const fields = a.requests + n * batch::kRequestFields;
    if (fields[batch::kState] != batch::kActive) continue;
    if (!is_sound_request(a, fields)) return -1;
    waiting += waiting_rows(fields, fields[batch::kLength] - fields[batch::kDone], a.R_largest);
  }
  return waiting;
}

/// Tokens that wait, with drafts, and how many there would be if there were all drafts that there may be.
struct Load {
  i64 waiting, possible;
};
/// Finds drafts for requests of which nothing but their last token waits.
template <class Args>
inline Load find_drafts(const Args& a, i64 waiting) {
  i64 active = 0;
  for (i64 n = 0; n < a.N; ++n) active += a.requests[n * batch::kRequestFields + batch::kState] == batch::kActive;
  if (active == 0 || waiting != active) return {waiting, waiting};
  using Drafts = Drafting<Args>;
  const i32 each = Drafts::most(static_cast<i32>(active)), free = Drafts::free(static_cast<i32>(active));
  if (each <= 0) return {waiting, waiting};
  i64 drafts = 0;
  for (i64 n = 0; n < a.N; ++n) {
    i32* const fields = a.requests + n * batch::kRequestFields;
    const i32 length = fields[batch::kLength], limit = fields[batch::kLimit] - 1,
              room = (limit < a.S ? limit : static_cast<i32>(a.S)) - length, most = each < room ? each : room,
              count = min(most, max(free, Drafts::allowed(fields)));
    if (fields[batch::kState] != batch::kActive || most <= 0 || (fields[batch::kFlags] & batch::kNoDrafts) != 0)
      continue;
    if constexpr (Drafts::kHasModel) {
      fields[batch::kDone] = length + count;
      drafts += count;
      continue;
    }
    const auto token = [&](i32 s) -> i32& { return a.history[n * a.S + s]; };
    const DraftMatch match = find_match(token, length, Drafts::kMatch);
    if (match == 0) continue;
    for (i32 i = 0; i < max(count, 1); ++i) token(length + i) = draft_token(token, length, match, i);
    if (count == 0) {
      fields[batch::kFlags] |= batch::kGuessed;
      continue;
    }
    fields[batch::kDone] = length + count;
    drafts += count;
  }
  i32& quiet = a.counts[batch::kQuiet];
  quiet = drafts > 0 ? 0 : quiet < batch::kPatience ? quiet + 1 : quiet;
  return {waiting + drafts, waiting + active * each};
}
/// Drafts are the kernel's that found them.
template <class Args>
inline void forget_drafts(const Args& a) {
  for (i64 n = 0; n < a.N; ++n) {
    i32* const fields = a.requests + n * batch::kRequestFields;
    if (fields[batch::kState] == batch::kActive && has_drafts(fields))
      fields[batch::kDone] = fields[batch::kLength] - 1;
  }
}

/// Whether this kernel goes on with a load. Where there are drafts now and then it does not make room for a smaller one as soon as
/// there is none.
template <class Args>
inline bool goes_on(const Args& a, Load load) {
  const bool is_quiet = !Drafting<Args>::kIsOn || a.counts[batch::kQuiet] >= batch::kPatience;
  return load.waiting > 0 && (is_quiet ? load.waiting : load.possible) > a.counts[batch::kLeast] &&
         load.waiting <= a.counts[batch::kMaxWaiting];
}

/// Rows that a request has in any case or if there is room, and the position of the first.
struct WantedRows {
  i32 start, more;
};
template <class Args>
inline WantedRows wanted_rows(const i32* fields) {
  if (Drafting<Args>::kIsOn && has_drafts(fields))
    return {fields[batch::kLength] - 1, fields[batch::kDone] - fields[batch::kLength]};
  return {fields[batch::kDone], fields[batch::kLength] - fields[batch::kDone] - 1};
}

/// `each(n, fields, count)` for each active request, with how many rows it has in the next iteration.
template <class Args, class Each>
inline void each_share(const Args& a, Each each) {
  i64 active = 0;
  for (i64 n = 0; n < a.N; ++n) active += a.requests[n * batch::kRequestFields + batch::kState] == batch::kActive;
  const auto beside = [&](i64 all) { return all < active ? 0 : all - active; };
  FreeRows free = {beside(a.T_largest), beside(a.R_largest)};
  for (i64 n = 0; n < a.N; ++n) {
    i32* const fields = a.requests + n * batch::kRequestFields;
    if (fields[batch::kState] != batch::kActive) continue;
    each(n, fields, static_cast<i32>(1 + free.take(fields, wanted_rows<Args>(fields).more)));
  }
}

/// Lays out the next iteration's rows, all but their tokens (token_at()); how many they are.
template <class Args>
inline i32 plan_rows(const Args& a) {
  RowOrder order;
  each_share(a, [&](i64, const i32*, i32 count) { (count == 1 ? order.singles : order.others) += count; });
  // With more active requests than there is room for, or than are sampled at a time.
  if (!is_inside(a.faults, order.rows(), a.T_largest + 1, Args::Checks::requests)) return 0;
  i32 singles = 0, others = 0, samples = 0;
  bool fits = true;
  each_share(a, [&](i64 n, i32* fields, i32 count) {
    const i32 start = wanted_rows<Args>(fields).start, length = fields[batch::kLength];
    fields[batch::kDone] = start + count;
    for (i32 i = 0; i < count; ++i) {
      const i32 row = count == 1 ? order.row_of_single(singles++) : order.row_of_other(others++);
      a.row_request[row] = static_cast<i32>(n);
      a.row_position[row] = start + i;
      a.row_start[row] = start;
      if (start + i < length - 1 && !is_sampled_each_row(fields)) continue;
      fits = fits && is_inside(a.faults, samples, a.R_largest, Args::Checks::requests);
      if (!fits) return;
      a.sample_row[samples] = row;
      a.sample_request[samples] = static_cast<i32>(n);
      ++samples;
    }
  });
  if (!fits) return 0;
  a.counts[batch::kRows] = order.rows();
  a.counts[batch::kSamples] = samples;
  return order.rows();
}

/// The last token behind the prompt is worked on right after it was sampled. So `history` is read only for what a request
/// began with: a host has that without asking a GPU, and a GPU need not wait until its last token is there.
template <class Args>
inline i32 token_at(const Args& a, i64 request, i32 position) {
  const i32* const fields = a.requests + request * batch::kRequestFields;
  const bool is_sampled = position >= fields[batch::kPrompt] && position + 1 == fields[batch::kLength];
  return is_sampled ? fields[batch::kLast] : a.history[request * a.S + position];
}

/// The body of the operator `advance`.
template <class Args>
inline void advance(const Args& a) {
  runtime::Mailbox* mailbox = reinterpret_cast<runtime::Mailbox*>(a.mailbox);
  const auto post = [&](const runtime::MailRecord& record) { runtime::mailbox_post(mailbox, record, a.abort); };
  for (i64 r = 0, end = 0; r < a.R; r = end) {
    end = end_of_samples(a, r, a.R);
    const i64 first = r + tell_known(a, r, end, post);
    if (first < end && !take_in_request(a, first, end, post)) return;
  }
  i64 waiting = 0;
  for (;;) {
    const runtime::CommandRange commands = runtime::commands_seen(mailbox);
    bool is_sound = true;
    runtime::commands_take(mailbox, commands, [&](const runtime::Command& command) {
      is_sound = is_sound && take_command(a, command, post);
    });
    if (!is_sound) return;
    waiting = waiting_tokens(a);
    if (waiting != 0 || mailbox->serves == 0) break;
    if (!runtime::commands_wait(mailbox, commands.end, a.abort)) return;
  }
  Load load = {waiting, waiting};
  if constexpr (Drafting<Args>::kIsOn) load = find_drafts(a, waiting);
  a.counts[batch::kRows] = a.counts[batch::kSamples] = 0;
  a.counts[batch::kWaiting] = static_cast<i32>(load.waiting);
  const bool is_mine = goes_on(a, load);
  if (Drafting<Args>::kIsOn && !is_mine) forget_drafts(a);
  const i32 rows = is_mine ? plan_rows(a) : 0;
  for (i32 row = 0; row < rows; ++row) a.row_token[row] = token_at(a, a.row_request[row], a.row_position[row]);
  a.stop[0] = rows > 0 ? 0 : 1;
}

}  // namespace megalith::kernels
