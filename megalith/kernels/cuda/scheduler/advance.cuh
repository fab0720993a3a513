// The end of an iteration on a GPU: the steps of kernels/cpu/advance.h, taken by one warp on a copy of the batch block in
// shared memory, a request a lane. The block fetches it and writes it back, since a look into device memory takes
// longer than all the rest. What the host wants to know goes to its memory together: a warp of its own looks meanwhile
// whether there is room, and the signal warp says that there is mail when it has told the other workers.
#pragma once

#include "megalith/kernels/advance_layout.h"
#include "megalith/kernels/cpu/advance.h"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"
#include "megalith/kernels/cuda/pipeline/weight_ring.cuh"
#include "megalith/kernels/cuda/scheduler/find_match.cuh"
#include "megalith/kernels/cuda/scheduler/mail.cuh"

namespace megalith::kernels {

/// The batch block but for the histories and the stop tokens that only some requests have, which stay where they are.
struct AdvanceCopy {
  i32 requests[advance::kMaxRequests * batch::kRequestFields];
  i32 token[advance::kMaxRequests], sample_row[advance::kMaxRequests], sample_request[advance::kMaxRequests];
  f32 logprob[advance::kMaxRequests];
  RowOrder order;  // of the next iteration's rows, which are these requests'
  i32 num_requests_of_others;
  i32 num_rows[advance::kMaxRequests];
  i32 request_of_single[advance::kMaxRequests], request_of_others[advance::kMaxRequests];
  i32 first_of_others[advance::kMaxRequests];  // the number of such a request's first row
  i32 stop_tokens[advance::kMaxStopTokens], counts[batch::kCountFields], num_records;
  i32 row_token[advance::kMaxRequests];  // of an iteration with drafts, which has no more rows
  i32 most_drafts, free_drafts;          // of a request (Drafting)
  DraftMatch matches[kWarps];
  i32 waiting;                     // tokens, once commands are taken
  u32 is_over, has_room;           // after an abort; for the records in the mailbox
  runtime::CommandRange commands;  // that the host has posted
  runtime::MailWriter writer;      // as it was before them
  u64 now;
  // Of each record: where it stands among all that are posted, and whose top tokens stand in front of it (TopOf).
  i32 place[2 * advance::kMaxRequests], top_of[2 * advance::kMaxRequests];
  i32 num_top;  // records of top tokens
  alignas(16) runtime::MailRecord records[2 * advance::kMaxRequests];
};

/// The sample that a token is from, and how many of its top tokens are posted, in one word.
struct TopOf {
  int sample, count;

  static constexpr int kCountBits = 5;
  static_assert(batch::kMaxTop < 1 << kCountBits);
  i32 word() const { return sample << kCountBits | count; }
  static TopOf from(i32 word) { return {word >> kCountBits, word & ((1 << kCountBits) - 1)}; }
};

/// The same under the names that kernels/cpu/advance.h knows.
template <class Args>
struct AdvanceView {
  using Checks = typename Args::Checks;
  static constexpr i64 N = Args::N, S = Args::S, E = Args::E, T_largest = Args::T_largest, R_largest = Args::R_largest;
  static constexpr f32 draft_tokens = Args::draft_tokens, draft_match = Args::draft_match,
                       draft_rows = Args::draft_rows, draft_free_rows = Args::draft_free_rows,
                       draft_model = Args::draft_model;
  FaultNote faults;
  i32 *requests, *history, *counts, *sample_row, *sample_request;
  const i32 *stop_tokens, *own_stops, *token, *row_token;
  const f32* logprob;
};

/// Of kCount values what a thread of kStep copies. Several such shares are loaded before one is put: a load stays behind
/// a store that it might see, so one after the other each would be a trip to the L2.
template <class T, int kCount, int kStep>
class Share {
 public:
  explicit Share(const T* from) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) values_[i] = has(i) ? from[at(i)] : T{};
  }
  void put(T* to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (has(i)) to[at(i)] = values_[i];
  }

 private:
  static constexpr int kEach = (kCount + kStep - 1) / kStep;
  static int at(int i) { return thread() + i * kStep; }
  static bool has(int i) { return at(i) < kCount; }

  T values_[kEach > 0 ? kEach : 1];
};

/// Of the values of all lanes what those before this one come to, and all. With room for kMax requests lanes behind
/// as many have none.
struct Lanes {
  int before, all;
};
template <int kMax>
inline Lanes add_lanes(int value) {
  constexpr int kLanes = kMax < kWarpLanes ? kMax : kWarpLanes;
  int sum = value;
#pragma unroll
  for (int apart = 1; apart < kLanes; apart *= 2) {
    const int other = __shfl_sync(0xffffffffu, sum, max(lane() - apart, 0));
    if (lane() >= apart) sum += other;
  }
  return {sum - value, __shfl_sync(0xffffffffu, sum, kLanes - 1)};
}

/// Marks the samples whose tokens are known: their requests stand there as what is less than 0.
template <class View>
inline void mark_known_by_warp(const View& view, AdvanceCopy& copy, int samples) {
#pragma unroll 1
  for (int first = 0; first < samples; first += kWarpLanes) {
    const int r = first + lane(), request = r < samples ? copy.sample_request[r] : -1;
    const i32* const fields = view.requests + request * batch::kRequestFields;
    const bool is_there = request >= 0 && request < View::N;  // take_in() notes what is not
    const bool marks =
        is_there && is_sampled_each_row(fields) && is_known(fields, length_behind_row(view, r, samples, fields));
    warp_sync();  // all have looked at these samples, and at those behind them
    if (marks) copy.sample_request[r] = ~request;
  }
  warp_sync();
}

/// tell_known() and take_in_request() of each that has samples, by a warp. Records as one thread would post them.
template <class View>
inline void take_in_by_warp(const View& view, AdvanceCopy& copy, int samples) {
  constexpr int kMaxLanes = static_cast<int>(View::R_largest);
  int num_records = 0, num_top = 0;
  mark_known_by_warp(view, copy, samples);
#pragma unroll 1
  for (int first = 0; first < samples; first += kWarpLanes) {
    const int r = first + lane();
    const bool is_known = r < samples && copy.sample_request[r] < 0;
    bool leads = r < samples && !is_known;
    if constexpr (Drafting<View>::kIsOn)
      leads = leads && (r == 0 || copy.sample_request[r - 1] != copy.sample_request[r]);
    // What a request is given are samples one behind the other, so what tells of them is put together behind it.
    runtime::MailRecord token = {}, end = {};
    int tokens = 0;
    bool ends = false;
    if (is_known)
      tokens = 1, token = {static_cast<u32>(~copy.sample_request[r]), copy.token[r],
                           static_cast<u32>(runtime::MailKind::prompt), 0, copy.logprob[r]};
    if (leads)
      take_in_request(view, r, Drafting<View>::kIsOn ? end_of_samples(view, r, samples) : r + 1,
                      [&](const runtime::MailRecord& record) {
                        if (record.kind == static_cast<u32>(runtime::MailKind::finished))
                          ends = true, end = record;
                        else if (tokens++ == 0)
                          token = record;
                      });
    const Lanes records = add_lanes<kMaxLanes>(tokens + ends);
    int top = 0;
    if (tokens > 0) top = batch::top_tokens_of(view.requests[token.request * batch::kRequestFields + batch::kFlags]);
    Lanes tops = {};
    if (__ballot_sync(0xffffffffu, top > 0) != 0) tops = add_lanes<kMaxLanes>(tokens * top);
    int to = num_records + records.before, before = num_top + tops.before;
    const auto put = [&](const runtime::MailRecord& record, TopOf of) {
      before += of.count;
      copy.records[to] = record;
      copy.place[to] = to + before;
      copy.top_of[to++] = of.word();
    };
    if (tokens > 0) put(token, {r, top});
    for (int i = 1; i < tokens; ++i)
      put({token.request, copy.token[r + i], token.kind, runtime::kAccepted, copy.logprob[r + i]}, {r + i, top});
    if (ends) put(end, {r, 0});
    num_records += records.all;
    num_top += tops.all;
  }
  if (lane() == 0) copy.num_records = num_records, copy.num_top = num_top;
}

/// take_command() of each that is there, by one thread: there are seldom any.
template <class View>
inline void take_commands(const View& view, AdvanceCopy& copy, runtime::Mailbox* mailbox) {
  runtime::commands_take(mailbox, copy.commands, [&](const runtime::Command& command) {
    take_command(view, command, [&](const runtime::MailRecord& record) {
      copy.place[copy.num_records] = copy.num_records + copy.num_top;
      copy.top_of[copy.num_records] = 0;
      copy.records[copy.num_records++] = record;
    });
  });
}

/// find_drafts(), by a block; what waits plan_rows_by_warp() adds up. Whoever looks at a token has to see what another thread
/// wrote there.
template <class View>
inline void find_drafts_by_block(const View& view, AdvanceCopy& copy) {
  using Drafts = Drafting<View>;
  constexpr int N = static_cast<int>(View::N);
  const auto fields_of = [&](int n) { return view.requests + n * batch::kRequestFields; };
  if (warp() == 0) {
    int active = 0;
    u32 others = 0;
#pragma unroll 1
    for (int first = 0; first < N; first += kWarpLanes) {
      const int n = first + lane();
      const bool counts = n < N && fields_of(n)[batch::kState] == batch::kActive;
      active += __popc(__ballot_sync(0xffffffffu, counts));
      others |= __ballot_sync(0xffffffffu, counts && fields_of(n)[batch::kLength] - fields_of(n)[batch::kDone] != 1);
    }
    if (lane() == 0) {
      copy.most_drafts = active == 0 || others != 0 ? 0 : Drafts::most(active);
      copy.free_drafts = active == 0 ? 0 : Drafts::free(active);
    }
  }
  block_sync();
  const int each = copy.most_drafts;
  if (each <= 0) return;
  bool has_found = false;
#pragma unroll 1
  for (int n = 0; n < N; ++n) {
    i32* const fields = fields_of(n);
    const int length = fields[batch::kLength], end = min(fields[batch::kLimit] - 1, static_cast<int>(View::S)),
              most = min(each, end - length), count = min(most, max(copy.free_drafts, Drafts::allowed(fields)));
    // A length that is not sound is plan_rows_by_warp()'s to note.
    if (fields[batch::kState] != batch::kActive || most <= 0 || length <= 0) continue;
    if ((fields[batch::kFlags] & batch::kNoDrafts) != 0) continue;
    if constexpr (Drafts::kHasModel) {
      has_found = true;
      block_sync();  // all have looked at it
      if (thread() == 0) fields[batch::kDone] = length + count;
      continue;
    }
    u32* const words = reinterpret_cast<u32*>(view.history + n * View::S);
    const auto token = [&](int s) { return static_cast<i32>(load_relaxed(words + s)); };
    const DraftMatch match = find_match_by_block(token, length, copy.matches);
    const bool is_found = match_length(match) >= Drafts::kMatch;
    has_found |= is_found && count > 0;
    // Each is looked up among the tokens before, which nobody changes.
    if (is_found && thread() < max(count, 1))
      view.history[n * View::S + length + thread()] = draft_token(token, length, match, thread());
    block_sync();  // all have looked at it
    if (!is_found || thread() != 0) continue;
    if (count > 0)
      fields[batch::kDone] = length + count;
    else
      fields[batch::kFlags] |= batch::kGuessed;
  }
  if (thread() == 0) {
    i32& quiet = copy.counts[batch::kQuiet];
    quiet = has_found ? 0 : min(quiet + 1, batch::kPatience);
  }
}

/// Tokens that wait, and plan_rows() if the kernel goes on with them, by a warp: but for the rows themselves (planned_row()). The
/// tokens that wait.
template <class View>
inline int plan_rows_by_warp(const View& view, AdvanceCopy& copy) {
  constexpr int N = static_cast<int>(View::N);
  const auto is_active = [&](int n) {
    return n < N && view.requests[n * batch::kRequestFields + batch::kState] == batch::kActive;
  };
  int free_rows = static_cast<int>(View::T_largest), free_samples = static_cast<int>(View::R_largest), of_lane = 0;
  bool is_sound = true;
#pragma unroll 1
  for (int first = 0; first < N; first += kWarpLanes) {
    const int n = first + lane();
    const i32* const fields = view.requests + n * batch::kRequestFields;
    const bool counts = is_active(n);
    const int active = __popc(__ballot_sync(0xffffffffu, counts));
    free_rows -= active, free_samples -= active;
    if (!counts) continue;
    const bool is_drafted = Drafting<View>::kIsOn && has_drafts(fields);
    is_sound &= is_drafted || is_sound_request(view, fields);
    const int waiting = 1 + wanted_rows<View>(fields).more;
    of_lane += is_drafted ? waiting : static_cast<int>(waiting_rows(fields, waiting, View::R_largest));
  }
  const int all_waiting = add_lanes<N>(of_lane).all;
  const int waiting = __ballot_sync(0xffffffffu, !is_sound) == 0 ? all_waiting : -1;
  int possible = waiting;
  if constexpr (Drafting<View>::kIsOn)
    if (copy.most_drafts > 0) possible = (static_cast<int>(View::T_largest) - free_rows) * (1 + copy.most_drafts);
  const bool goes_on = kernels::goes_on(view, {waiting, possible});
  // Whose rows they are, by their numbers.
  RowOrder order;
  int num_requests_of_others = 0;
#pragma unroll 1
  for (int first = 0; first < N && goes_on; first += kWarpLanes) {
    const int n = first + lane();
    i32* const fields = view.requests + n * batch::kRequestFields;
    const bool counts = is_active(n);
    int more = counts ? wanted_rows<View>(fields).more : 0;
    // As FreeRows::take() does for one behind the other.
    if (const bool is_limited = counts && is_sampled_each_row(fields); __ballot_sync(0xffffffffu, is_limited) != 0) {
      const Lanes sampled = add_lanes<N>(is_limited ? more : 0);
      if (is_limited) more = max(min(more, free_samples - sampled.before), 0);
      free_samples = max(free_samples - sampled.all, 0);
    }
    const Lanes wanted = add_lanes<N>(more);
    const int rows = counts ? 1 + max(min(more, free_rows - wanted.before), 0) : 0;
    free_rows = max(free_rows - wanted.all, 0);
    const u32 singles = __ballot_sync(0xffffffffu, rows == 1), others = __ballot_sync(0xffffffffu, rows > 1);
    const u32 before = (1u << lane()) - 1;
    if (rows == 1) copy.request_of_single[order.singles + __popc(singles & before)] = n;
    order.singles += __popc(singles);
    if (others != 0) {
      const Lanes of_others = add_lanes<N>(rows > 1 ? rows : 0);
      const int at = num_requests_of_others + __popc(others & before);
      if (rows > 1) copy.request_of_others[at] = n, copy.first_of_others[at] = order.others + of_others.before;
      num_requests_of_others += __popc(others);
      order.others += of_others.all;
    }
    if (n < N) copy.num_rows[n] = rows;
  }
  // Where they stand, and which of them are sampled.
  int samples = 0, singles_before = 0, others_before = 0;
#pragma unroll 1
  for (int first = 0; first < N && goes_on; first += kWarpLanes) {
    const int n = first + lane();
    i32* const fields = view.requests + n * batch::kRequestFields;
    const int rows = n < N ? copy.num_rows[n] : 0;
    const u32 singles = __ballot_sync(0xffffffffu, rows == 1);
    const int number = singles_before + __popc(singles & ((1u << lane()) - 1));
    const Lanes of_others = order.others != 0 ? add_lanes<N>(rows > 1 ? rows : 0) : Lanes{};
    const int length = rows > 0 ? fields[batch::kLength] : 0;
    if (rows > 0) fields[batch::kDone] = wanted_rows<View>(fields).start + rows;
    // Behind the request's last token, and behind each draft; or behind each row.
    const int of_last = rows > 0 ? max(fields[batch::kDone] - length + 1, 0) : 0;
    const int of_request = rows > 0 && is_sampled_each_row(fields) ? rows : of_last;
    const Lanes sampled = add_lanes<N>(of_request);
#pragma unroll 1
    for (int i = 0; i < of_request && samples + sampled.before + i < View::R_largest; ++i) {
      const int at = samples + sampled.before + i, row = rows - of_request + i;
      view.sample_row[at] =
          rows == 1 ? order.row_of_single(number) : order.row_of_other(others_before + of_others.before + row);
      view.sample_request[at] = n;
    }
    samples += sampled.all;
    singles_before += __popc(singles);
    others_before += of_others.all;
  }
  if (Drafting<View>::kIsOn && !goes_on)
#pragma unroll 1
    for (int n = lane(); n < N; n += kWarpLanes) {
      i32* const fields = view.requests + n * batch::kRequestFields;
      if (is_active(n) && has_drafts(fields)) fields[batch::kDone] = fields[batch::kLength] - 1;
    }
  if (lane() != 0) return waiting;
  view.counts[batch::kWaiting] = waiting;
  copy.order = order;
  copy.num_requests_of_others = num_requests_of_others;
  // With more active requests than there is room for, or than are sampled at a time.
  const bool fits = is_inside(view.faults, order.rows(), View::T_largest + 1, View::Checks::requests) &&
                    is_inside(view.faults, samples, View::R_largest + 1, View::Checks::requests);
  view.counts[batch::kRows] = fits ? order.rows() : 0;
  view.counts[batch::kSamples] = fits ? samples : 0;
  return waiting;
}

/// Row `row` of those planned.
struct PlannedRow {
  i32 request, position, start;
};
inline PlannedRow planned_row(const AdvanceCopy& copy, int row) {
  const NumberedRow numbered = copy.order.at(row);
  int of_others = 0;
  if (!numbered.is_single)
    for (int end = copy.num_requests_of_others; of_others + 1 < end;) {
      const int middle = (of_others + end) / 2;
      (copy.first_of_others[middle] <= numbered.number ? of_others : end) = middle;
    }
  const i32 request = numbered.is_single ? copy.request_of_single[numbered.number] : copy.request_of_others[of_others];
  const i32 start = copy.requests[request * batch::kRequestFields + batch::kDone] - copy.num_rows[request];
  return {request, start + (numbered.is_single ? 0 : numbered.number - copy.first_of_others[of_others]), start};
}

/// Readies the mailbox for the records of `samples` samples, and looks for commands, by the block's thread that speaks with
/// the host.
inline void look_at_host(AdvanceCopy& copy, runtime::Mailbox* mailbox, int samples, const u32* abort) {
  NextMail& next = next_mail();
  if (next.is_known == 0) next = {runtime::mailbox_writer(mailbox), 1, mailbox->serves};
  copy.commands = next.serves != 0 ? runtime::commands_seen(mailbox) : runtime::CommandRange{};
  // A token with its top tokens and the end of a sequence each, and a sequence that a command ends.
  const u32 records = static_cast<u32>((2 + batch::kMaxTop) * samples) + copy.commands.end - copy.commands.begin;
  copy.has_room = runtime::mailbox_reserve(mailbox, next.writer, records, abort) ? 1 : 0;
  copy.writer = next.writer;
  copy.now = runtime::monotonic_ns();
}

/// Writes the records, by all threads of a block.
template <class Args>
inline void write_records(const Args& args, const AdvanceCopy& copy) {
  const int num_records = copy.num_records;
#pragma unroll 1
  for (int i = thread(); i < num_records; i += kThreads) {
    const runtime::MailRecord record = copy.records[i];
    const int place = copy.place[i];
    const TopOf top = TopOf::from(copy.top_of[i]);
#pragma unroll 1
    for (int k = 0; k < top.count; ++k) {
      const int at = top.sample * batch::kMaxTop + k;
      runtime::mailbox_write(
          copy.writer, static_cast<u32>(place - top.count + k),
          {record.request, args.top_token[at], static_cast<u32>(runtime::MailKind::top), 0, args.top_logprob[at]},
          copy.now);
    }
    runtime::mailbox_write(copy.writer, static_cast<u32>(place), record, copy.now);
  }
}

/// With nothing to do: the host has its records now, and the block waits for commands.
template <class Args>
inline void wait_for_commands(const Args& args, AdvanceCopy& copy, runtime::Mailbox* mailbox) {
  const u32* const abort = args.abort;
  write_records(args, copy);
  block_sync();
  if (thread() == 0) {
    NextMail& next = next_mail();
    // Mail of the iteration before is the signal warp's to publish.
    while (load_relaxed(&mailbox->head) != next.writer.head && load_relaxed(abort) == 0) {}
    next.writer.head += static_cast<u32>(copy.num_records + copy.num_top);
    runtime::mailbox_publish(mailbox, next.writer.head);
    copy.num_records = copy.num_top = 0;
    copy.is_over = runtime::commands_wait(mailbox, copy.commands.end, abort) ? 0 : 1;
    look_at_host(copy, mailbox, 0, abort);
  }
}

/// Writes what was planned, by all threads of a block.
template <class Args>
inline void write_rows(const Args& args, const AdvanceView<Args>& view, const AdvanceCopy& copy) {
  const auto each = [](int count, auto action) {
#pragma unroll 1
    for (int i = thread(); i < count; i += kThreads) action(i);
  };
  const int rows = copy.counts[batch::kRows];
  each(static_cast<int>(Args::N) * batch::kRequestFields, [&](int i) { args.requests[i] = copy.requests[i]; });
  each(rows, [&](int i) {
    const PlannedRow row = planned_row(copy, i);
    args.row_request[i] = row.request;
    args.row_position[i] = row.position;
    args.row_start[i] = row.start;
    args.row_token[i] = token_at(view, row.request, row.position);
  });
  each(copy.counts[batch::kSamples], [&](int i) {
    args.sample_row[i] = copy.sample_row[i];
    args.sample_request[i] = copy.sample_request[i];
  });
  if (thread() != 0) return;
  args.counts[batch::kRows] = rows;
  args.counts[batch::kSamples] = copy.counts[batch::kSamples];
  args.counts[batch::kWaiting] = copy.counts[batch::kWaiting];
  args.counts[batch::kQuiet] = copy.counts[batch::kQuiet];
  args.stop[0] = rows > 0 ? 0 : 1;
}

/// Brings what the task reads into the L2, by a warp that is tasks ahead: since the last iteration all weights have
/// passed through it.
template <class Args>
inline void advance_ahead(const Args& args) {
  constexpr u32 kRequests = static_cast<u32>(Args::N);
  prefetch_lines(args.requests, kRequests * batch::kRequestFields * 4);
  prefetch_lines(args.sample_request, static_cast<u32>(Args::R_largest) * 4);
  prefetch_lines(args.stop_tokens, static_cast<u32>(Args::E) * 4);
  prefetch_lines(args.abort, sizeof(*args.abort));
  // Tokens that drafts are looked for in, of few sequences.
  constexpr i64 kTokenBytes = Args::N * Args::S * 4;
  if constexpr (Drafting<Args>::kIsOn && kTokenBytes <= (64 << 10))
    prefetch_lines(args.history, static_cast<u32>(kTokenBytes));
}

template <class Args>
inline void advance_by_block(const Args& args) {
  static_assert(Args::N <= advance::kMaxRequests && Args::R_largest <= advance::kMaxRequests &&
                Args::T_largest <= advance::kMaxRows && Args::E <= advance::kMaxStopTokens);
  static_assert(sizeof(AdvanceCopy) <= advance::area_bytes());
  AdvanceCopy& copy = *reinterpret_cast<AdvanceCopy*>(shared_area());
  constexpr int N = static_cast<int>(Args::N), E = static_cast<int>(Args::E);
  const int samples = static_cast<int>(args.R);
  constexpr int kOthers = kThreads - kWarpLanes;  // all warps but the last
  runtime::Mailbox* const mailbox = reinterpret_cast<runtime::Mailbox*>(args.mailbox);
  const AdvanceView<Args> view = {args.faults,     copy.requests,       args.history,     copy.counts,
                                  copy.sample_row, copy.sample_request, copy.stop_tokens, args.own_stops,
                                  copy.token,      copy.row_token,      copy.logprob};
  // After an abort there is nothing to take in: what came here may be anything (runtime/cuda/worker.cuh).
  if (warp() == kWarps - 1) {
    if (lane() == 0) look_at_host(copy, mailbox, samples, args.abort);
  } else {
    // All there is room for, without a look at how many there are.
    constexpr int R = static_cast<int>(Args::R_largest);
    const Share<i32, N * batch::kRequestFields, kOthers> requests(args.requests);
    const Share<i32, R, kOthers> token(args.token), sample_request(args.sample_request);
    const Share<f32, R, kOthers> logprob(args.logprob);
    const Share<i32, E, kOthers> stop_tokens(args.stop_tokens);
    const Share<i32, batch::kCountFields, kOthers> counts(args.counts);
    constexpr int kDrafted = Drafting<Args>::kIsOn ? R : 0;
    const Share<i32, kDrafted, kOthers> sample_row(args.sample_row), row_token(args.row_token);
    const u32 is_aborted = load_relaxed(args.abort);
    requests.put(copy.requests);
    token.put(copy.token);
    sample_request.put(copy.sample_request);
    logprob.put(copy.logprob);
    stop_tokens.put(copy.stop_tokens);
    counts.put(copy.counts);
    sample_row.put(copy.sample_row);
    row_token.put(copy.row_token);
    if (thread() == 0) copy.is_over = is_aborted;
    part_sync(0, kOthers);
    if (warp() == 0 && copy.is_over == 0) take_in_by_warp(view, copy, samples);
  }
  for (;;) {
    block_sync();
    if (warp() == 0 && copy.is_over == 0 && lane() == 0) take_commands(view, copy, mailbox);
    if constexpr (Drafting<Args>::kIsOn) {
      block_sync();
      if (copy.is_over == 0) find_drafts_by_block(view, copy);
      block_sync();
    }
    if (warp() == 0 && copy.is_over == 0) {
      warp_sync();
      const int waiting = plan_rows_by_warp(view, copy);
      if (lane() == 0) copy.waiting = waiting;
    }
    block_sync();
    if (copy.is_over != 0 || copy.has_room == 0) return;
    if (copy.waiting != 0 || next_mail().serves == 0) break;
    block_sync();  // all have looked
    wait_for_commands(args, copy, mailbox);
  }
  write_rows(args, view, copy);
  write_records(args, copy);
  if (thread() != 0 || copy.num_records == 0) return;
  args.task->mail = mailbox;
  args.task->mail_head = next_mail().writer.head += static_cast<u32>(copy.num_records + copy.num_top);
}

/// Lays out the first rows of a kernel that was launched behind another one (runtime/cuda/program.h), by a block, if the load
/// with which that one ended lies in `range`; otherwise, and if it was aborted, the kernel is to end as it begins.
template <class Args>
inline void take_over_by_block(const Args& args, batch::LoadRange range) {
  AdvanceCopy& copy = *reinterpret_cast<AdvanceCopy*>(shared_area());
  const AdvanceView<Args> view = {args.faults,     copy.requests,       args.history,     copy.counts,
                                  copy.sample_row, copy.sample_request, copy.stop_tokens, args.own_stops,
                                  copy.token,      copy.row_token,      copy.logprob};
  const i32 waiting = args.counts[batch::kWaiting];
  const bool is_mine = args.stop[0] != 0 && waiting > range.least && waiting <= range.most;
  block_sync();  // all have looked
  if (!is_mine) {
    if (thread() == 0) args.stop[0] = 1;
    return;
  }
  for (int i = thread(); i < static_cast<int>(Args::N) * batch::kRequestFields; i += kThreads)
    copy.requests[i] = args.requests[i];
  if (thread() == 0) {
    copy.counts[batch::kQuiet] = args.counts[batch::kQuiet];
    // Whatever waits: drafts, which the other one had and nobody knows any more, may have counted.
    copy.counts[batch::kLeast] = 0;
    copy.counts[batch::kMaxWaiting] = batch::LoadRange{}.most;
    copy.most_drafts = 0;
  }
  block_sync();
  if (warp() == 0) plan_rows_by_warp(view, copy);
  block_sync();
  if (thread() == 0) {
    copy.counts[batch::kWaiting] = waiting;
    args.counts[batch::kLeast] = range.least;
    args.counts[batch::kMaxWaiting] = range.most;
  }
  block_sync();
  write_rows(args, view, copy);
}

}  // namespace megalith::kernels
