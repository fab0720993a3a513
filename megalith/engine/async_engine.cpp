#include "megalith/engine/async_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/base/options.h"
#include "megalith/base/threads.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

namespace {

/// How often a service without requests looks whether its kernel is still there.
constexpr std::chrono::milliseconds kLook(200);

/// Of `request` all but the last token, whose keys are made when another one follows.
std::span<const int> all_but_last(const Request& request) {
  return std::span(request.prompt).first(request.prompt.size() - 1);
}

int64_t length_of(const Request& request) { return static_cast<int64_t>(request.prompt.size()); }

}  // namespace

int64_t default_service_batch(const std::string& target) { return jit::is_cuda_target(target) ? 64 : 8; }

int default_service_workers(const std::string& target) {
  const int workers = default_num_workers(target);
  const bool is_given = jit::is_cuda_target(target) || option_is_set("MEGALITH_THREADS");
  return is_given ? workers : std::max(workers - 1, 1);
}

AsyncEngine::AsyncEngine(Engine& engine, const AsyncEngineOptions& options)
    : engine_(engine),
      places_(static_cast<size_t>(engine.decoder_options().max_requests)),
      pages_(PagePool(engine.decoder_options().num_pages()), engine.decoder_options().page_size, options.prefix_cache) {
  thread_ = start_thread("the engine's service", [this] { serve(); });
}

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    engine_.cancel();
  }
  changed_.notify_all();
  thread_.join();
}

RequestId AsyncEngine::submit(Request request, RequestSink sink) {
  engine_.check({request});
  const std::lock_guard lock(mutex_);
  auto work = std::make_unique<Work>(Work{next_id_++, std::move(request), std::move(sink)});
  work->rank = {work->request.priority, work->id};
  work->prompt_tokens = static_cast<int32_t>(work->request.prompt.size());
  work->limit = length_limit(engine_.decoder_options(), work->request);
  const RequestId id = work->id;
  if (work->request.grammar)
    work->walk = std::make_shared<GrammarWalk>(work->request, work->prompt_tokens, engine_.stop_tokens());
  wait(std::move(work));
  if (is_launched_) plan();
  changed_.notify_all();
  return id;
}

void AsyncEngine::abort(RequestId id) {
  WorkPointer ended;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = place_of_.find(id); found != place_of_.end()) {
      Work& work = work_in(found->second);
      work.is_aborted = true;
      if (!work.is_dry) {
        cancel(found->second);
        return post_late();
      }
      ended = remove(found->second);  // the kernel has said all that it will say of it
    } else {
      const auto waits = std::ranges::find(waiting_, id, [](const WorkPointer& work) { return work->id; });
      if (waits == waiting_.end()) return;
      ended = std::move(*waits);
      waiting_.erase(waits);
    }
    if (is_launched_) plan();
  }
  ended->sink(id, {.end = RequestEnd::aborted});
}

ServiceLoad AsyncEngine::load() const {
  const std::lock_guard lock(mutex_);
  ServiceLoad load = counted_;
  load.running = static_cast<int>(place_of_.size());
  load.waiting = static_cast<int>(waiting_.size());
  load.pages = pages_.num_pages();
  load.pages_used = load.pages - pages_.num_available();
  load.pages_kept = pages_.num_kept();
  return load;
}

void AsyncEngine::clear_prefix_cache() {
  const std::lock_guard lock(mutex_);
  pages_.clear();
}

// ---- the service's thread --------------------------------------------------------------------

void AsyncEngine::serve() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    const auto has_something = [this] { return is_ending_ || !waiting_.empty() || engine_.are_late_regimes_ready(); };
    if (engine_.has_late_regimes())
      changed_.wait_for(lock, kLook, has_something);
    else
      changed_.wait(lock, has_something);
    if (is_ending_) break;
    if (!has_something()) continue;
    lock.unlock();
    RequestEnd end = RequestEnd::aborted;
    std::exception_ptr what;
    try {
      engine_.are_late_regimes_ready() ? take_in_late_regimes() : run();
    } catch (const std::exception& error) {
      log_warn("{}", error.what());
      end = RequestEnd::failed;
      what = std::current_exception();
    }
    end_all(end, what);
    lock.lock();
  }
  lock.unlock();
  end_all(RequestEnd::aborted);
}

void AsyncEngine::take_in_late_regimes() {
  const TurnGuard turn(engine_.turn_, "AsyncEngine");
  engine_.take_in_late_regimes(mutex_);
  const std::lock_guard lock(mutex_);
  makes_room_ = false;
}

void AsyncEngine::run() {
  const TurnGuard turn(engine_.turn_, "AsyncEngine");
  MEGALITH_CHECK(engine_.machine_, "[engine] there is no kernel any more: the service must start again");
  engine_.check_weights();
  RegimeMachine& machine = *engine_.machine_;
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return;
    std::vector<std::string> changed = engine_.clear_block();
    plan();
    if (place_of_.empty()) return;
    machine.start(changed, RunKind::serving);
    is_launched_ = true;
    had_masks_ = false;
    count_masks();
    for (const WorkPointer& work : places_)
      if (work && std::exchange(work->is_ending, false)) cancel(place_of_.at(work->id));
    post_late();
  }
  runtime::MailRecord record{};
  const auto take = [&] {
    switch (static_cast<runtime::MailKind>(record.kind)) {
      case runtime::MailKind::top: return take_top(record);
      case runtime::MailKind::prompt: return take_prompt(record);
      case runtime::MailKind::token: return take_token(record);
      case runtime::MailKind::finished: return take_end(record);
    }
  };
  while (!machine.finished()) {
    if (engine_.are_late_regimes_ready()) make_room();
    // Mail goes first: it says which masks are wanted next, and clients wait for it.
    const bool owes = owes_.load(std::memory_order_relaxed);
    if (owes ? machine.take_now(&record) : machine.take(&record)) {
      take();
      continue;
    }
    if (owes && write_mask()) continue;
    std::unique_lock lock(mutex_);
    post_late();
    if (place_of_.empty()) changed_.wait_for(lock, kLook, [this] { return is_ending_ || !place_of_.empty(); });
  }
  while (machine.take_now(&record)) take();
  {
    const std::lock_guard lock(mutex_);
    is_launched_ = false;
  }
  machine.wait();
  engine_.check_weights();
}

void AsyncEngine::make_room() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(makes_room_, true))
    for (size_t place = 0; place < places_.size(); ++place)
      if (const Work* const work = places_[place].get(); work && !work->is_ending && !work->is_aborted)
        preempt(static_cast<int64_t>(place));
  post_late();
  if (place_of_.empty()) engine_.machine_->cancel();
}

void AsyncEngine::take_top(const runtime::MailRecord& record) {
  const std::lock_guard lock(mutex_);
  work_in(record.request).top.push_back({record.token, record.logprob});
}

void AsyncEngine::take_prompt(const runtime::MailRecord& record) {
  const std::lock_guard lock(mutex_);
  Work& work = work_in(record.request);
  work.prompt_logprobs.push_back(
      {record.logprob, top_tokens_asked(std::exchange(work.top, {}), work.request.prompt_logprobs.value_or(0))});
  if (!std::isnan(record.logprob) || std::exchange(work.has_failed, true)) return;
  cancel(record.request);
  post_late();
}

void AsyncEngine::take_token(const runtime::MailRecord& record) {
  Work* work = nullptr;
  RequestEvent event{.token = record.token, .logprob = record.logprob, .posted_ns = record.posted_ns};
  {
    const std::lock_guard lock(mutex_);
    work = &work_in(record.request);  // it stays until this thread has read its end
    event.admitted_ns = std::exchange(work->admitted_ns, 0);
    event.cached_tokens = std::exchange(work->cached_tokens, 0);
    event.top = top_tokens_asked(std::exchange(work->top, {}), work->request.top_logprobs);
    event.prompt_logprobs = std::exchange(work->prompt_logprobs, {});
    work->request.prompt_logprobs.reset();  // told, also if it begins again
    ++counted_.generated_tokens;
    if (record.reason == runtime::kAccepted) {
      ++counted_.accepted_tokens;
      ++counted_.accepted_at[std::min(work->accepted++, counted_.accepted_at.size() - 1)];
    } else {
      work->accepted = 0;
      counted_.drafts += record.reason > 0;
      counted_.drafted_tokens += record.reason;
    }
    work->request.prompt.push_back(record.token);
    if (std::isnan(record.logprob) && !std::exchange(work->has_failed, true)) cancel(record.request);
    if (!std::exchange(work->makes_tokens, true)) share_pages(*work);
    if (work->walk && !ends_request(work->request, engine_.stop_tokens(), record.token)) owe_mask(record.request);
    post_late();
    const bool is_short = is_short_of_pages(engine_.decoder_options().page_size, length_of(work->request), work->limit,
                                            static_cast<int64_t>(work->pages.size()));
    if (is_short && !work->is_ending) plan();
  }
  // The end of a request that a stop token ends is told together with it.
  if (ends_request(work->request, engine_.stop_tokens(), event.token))
    work->last = event;
  else if (!work->has_failed)
    work->sink(work->id, event);
}

void AsyncEngine::take_end(const runtime::MailRecord& record) {
  WorkPointer ended;
  RequestEvent event{.posted_ns = record.posted_ns};
  {
    const std::lock_guard lock(mutex_);
    Work& work = work_in(record.request);
    const bool is_stopped = record.reason == batch::kStopToken, is_whole = length_of(work.request) == work.limit;
    if (!work.has_failed && !work.is_aborted && !is_stopped && !is_whole) {
      // The kernel has ended it, but it goes on, here or after a while.
      work.is_preempted ? wait_again(record.request) : static_cast<void>(work.is_dry = true);
      return plan();
    }
    if (is_stopped && !work.has_failed) event = work.last;
    event.end = work.has_failed ? RequestEnd::failed
                : is_stopped    ? RequestEnd::stop
                : is_whole      ? RequestEnd::length
                                : RequestEnd::aborted;
    if (!is_stopped) event.admitted_ns = work.admitted_ns, event.cached_tokens = work.cached_tokens;
    if (is_stopped || is_whole) share_pages(work);
    ended = remove(record.request);
    plan();
  }
  if (!ended->grammar_failure.empty())
    event.error = std::make_exception_ptr(UserError(fmt::format("[grammar] {}", ended->grammar_failure)));
  ended->sink(ended->id, event);
}

// Beside the lock, since a mask may take a while. Meanwhile the sequence may leave its place, and go on in another one.
bool AsyncEngine::write_mask() {
  std::shared_ptr<GrammarWalk> walk;
  std::vector<int> sequence;
  OwedMask owed{};
  const auto is_there = [&] {
    const Work* const work = places_[static_cast<size_t>(owed.place)].get();
    return work != nullptr && work->id == owed.id;
  };
  {
    const std::lock_guard lock(mutex_);
    while (!owed_.empty() && !walk) {
      owed = owed_.front();
      if (is_there()) {
        walk = work_in(owed.place).walk;
        sequence = work_in(owed.place).request.prompt;
      } else {
        owed_.pop_front();
      }
    }
    owes_.store(!owed_.empty(), std::memory_order_relaxed);
  }
  if (!walk) return false;
  MaskTable table(*engine_.machine_, engine_.config().vocab_size);
  mask_.resize(static_cast<size_t>(table.words()));
  walk->mask_behind(sequence, mask_.data());
  const std::lock_guard lock(mutex_);
  owed_.pop_front();
  owes_.store(!owed_.empty(), std::memory_order_relaxed);
  if (is_there()) {
    Work& work = work_in(owed.place);
    if (!walk->failure().empty() && !std::exchange(work.has_failed, true)) {
      work.grammar_failure = walk->failure();
      cancel(owed.place);
    }
    // Also of one that is to end: the kernel takes the command behind this token.
    table.publish(owed.place, mask_, static_cast<int64_t>(sequence.size()));
  }
  count_masks();
  post_late();
  return true;
}

void AsyncEngine::end_all(RequestEnd end, const std::exception_ptr& error) {
  std::vector<WorkPointer> ended;
  {
    const std::lock_guard lock(mutex_);
    is_launched_ = false;
    late_.clear();
    owed_.clear();
    owes_.store(false, std::memory_order_relaxed);
    for (size_t place = 0; place < places_.size(); ++place)
      if (places_[place]) ended.push_back(remove(static_cast<int64_t>(place)));
    pages_.clear();  // from here on the memory is another run's
    const bool ends_waiting = is_ending_ || (error && ended.empty());
    while (ends_waiting && !waiting_.empty()) {
      ended.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }
  for (const WorkPointer& work : ended) work->sink(work->id, {.end = end, .error = error});
}

// ---- places and pages ------------------------------------------------------------------------

// A GPU is sent all tables of all steps before the first command: to wait until they are there takes as long for many as for one.
void AsyncEngine::plan() {
  for (;;) {
    std::vector<int32_t> known;
    const AdmissionStep step = next_step(admission_state(known));
    switch (step.kind) {
      case AdmissionStep::Kind::none: return post_late();
      case AdmissionStep::Kind::begin: begin_next(std::move(known), step.pages); break;
      case AdmissionStep::Kind::grow: grow(step.place, step.pages); break;
      case AdmissionStep::Kind::preempt: preempt(step.place); break;
    }
  }
}

AdmissionState AsyncEngine::admission_state(std::vector<int32_t>& known) const {
  AdmissionState state{engine_.decoder_options().page_size, pages_.num_available(), {}, {}};
  for (size_t place = 0; place < places_.size(); ++place) {
    const Work* const work = places_[place].get();
    if (work)
      state.placed.push_back({static_cast<int64_t>(place), work->rank, length_of(work->request), work->limit,
                              static_cast<int64_t>(work->pages.size()), work->is_dry, work->is_ending});
  }
  if (waiting_.empty() || free_place() < 0 || makes_room_) return state;
  const Work& next = *waiting_.front();
  known = find_pages(next);
  state.next = {next.rank, length_of(next.request), next.limit, static_cast<int64_t>(known.size()),
                pages_.num_kept_of(known)};
  return state;
}

// What it has been told of its prompt it is told again. Before the launch the kernel finds the request in the batch block; later it is told.
void AsyncEngine::begin_next(std::vector<int32_t> known, int64_t num_pages) {
  const DecoderOptions& options = engine_.decoder_options();
  const int64_t place = free_place(), known_tokens = static_cast<int64_t>(known.size()) * options.page_size;
  WorkPointer work = std::move(waiting_.front());
  waiting_.pop_front();
  pages_.hold(known);  // before any is taken for what comes behind them
  work->pages = std::move(known);
  for (const int32_t page : pages_.take(num_pages)) work->pages.push_back(page);
  const Request& request = work->request;
  work->prompt_logprobs.clear();
  work->top.clear();
  work->line = batch_block_write(options, request, place, work->pages, engine_.memory_);
  work->line[batch::kPrompt] = work->prompt_tokens;
  work->line[batch::kLast] = request.prompt.back();
  work->line[batch::kLimit] =
      static_cast<int32_t>(length_with_pages(options.page_size, work->limit, static_cast<int64_t>(work->pages.size())));
  if (known_tokens > 0) work->line[batch::kDone] = static_cast<int32_t>(known_tokens);
  if (!std::exchange(work->was_admitted, true)) {
    work->admitted_ns = runtime::monotonic_ns();
    work->cached_tokens = known_tokens;
    counted_.prompt_tokens += request.prompt.size();
    if (pages_.keeps()) counted_.prefix_queries += request.prompt.size();
    counted_.prefix_hits += static_cast<uint64_t>(known_tokens);
  }
  // Before the command: what stands there may be another sequence's of the same length.
  if (work->walk) MaskTable(*engine_.machine_, engine_.config().vocab_size).clear(place);
  if (is_launched_) {
    send("page_table", place, options.pages_per_request(), 0, static_cast<int64_t>(work->pages.size()));
    send("history", place, options.max_seq_len, 0, length_of(request));
    for (const LinePart& part : sampling_lines(request)) send(part.table, place, part.line, 0, part.used);
    tell(runtime::CommandKind::begin, place, work->line);
  } else {
    std::ranges::copy(work->line, engine_.memory_.get<int32_t>("requests") + place * batch::kRequestFields);
  }
  const bool has_grammar = work->walk != nullptr;
  place_of_[work->id] = place;
  places_[static_cast<size_t>(place)] = std::move(work);
  if (!has_grammar) return;
  owe_mask(place);
  engine_.machine_->nudge();
}

// One that the kernel has ended begins again where it was: tokens and keys are there.
void AsyncEngine::grow(int64_t place, int64_t num_pages) {
  const DecoderOptions& options = engine_.decoder_options();
  Work& work = work_in(place);
  const auto had = static_cast<int64_t>(work.pages.size()), has = had + num_pages;
  const std::vector<int32_t> pages = pages_.take(num_pages);
  work.pages.insert(work.pages.end(), pages.begin(), pages.end());
  std::ranges::copy(pages, engine_.memory_.get<int32_t>("page_table") + place * options.pages_per_request() + had);
  send("page_table", place, options.pages_per_request(), had, has);
  work.line[batch::kLimit] = static_cast<int32_t>(length_with_pages(options.page_size, work.limit, has));
  if (!std::exchange(work.is_dry, false)) return tell(runtime::CommandKind::extend, place, work.line);
  work.line[batch::kLength] = static_cast<int32_t>(length_of(work.request));
  work.line[batch::kDone] = work.line[batch::kLength] - 1;
  work.line[batch::kLast] = work.request.prompt.back();
  tell(runtime::CommandKind::begin, place, work.line);
}

void AsyncEngine::preempt(int64_t place) {
  Work& work = work_in(place);
  if (work.is_dry) return wait_again(place);
  work.is_preempted = true;
  cancel(place);
}

// Of one that had yet to work through what it began with nobody knows here how far it came.
void AsyncEngine::wait_again(int64_t place) {
  if (work_in(place).makes_tokens) share_pages(work_in(place));
  WorkPointer work = remove(place);
  work->makes_tokens = work->is_dry = work->is_ending = work->is_preempted = false;
  ++counted_.preemptions;
  wait(std::move(work));
}

void AsyncEngine::wait(WorkPointer work) {
  const auto rank = [](const WorkPointer& one) { return one->rank; };
  const auto behind = std::ranges::upper_bound(waiting_, work->rank, {}, rank);
  waiting_.insert(behind, std::move(work));
}

AsyncEngine::WorkPointer AsyncEngine::remove(int64_t place) {
  WorkPointer work = std::move(places_[static_cast<size_t>(place)]);
  place_of_.erase(work->id);
  pages_.release(std::exchange(work->pages, {}));
  return work;
}

// A request that only pretends to have a past knows nothing that others could use. How likely its prompt is says only a kernel
// that works through all of it.
std::vector<int32_t> AsyncEngine::find_pages(const Work& work) const {
  if (work.request.cached_tokens > 0 || work.request.prompt_logprobs) return {};
  return pages_.find(all_but_last(work.request), work.request.cache_salt);
}

void AsyncEngine::share_pages(const Work& work) {
  if (work.has_failed || work.is_aborted || work.request.cached_tokens > 0) return;
  pages_.enter(all_but_last(work.request), work.request.cache_salt, work.pages);
}

int64_t AsyncEngine::free_place() const {
  const auto free = std::ranges::find_if(places_, [](const WorkPointer& work) { return work == nullptr; });
  return free == places_.end() ? -1 : free - places_.begin();
}

// ---- commands --------------------------------------------------------------------------------

void AsyncEngine::cancel(int64_t place) {
  if (std::exchange(work_in(place).is_ending, true) || !is_launched_) return;
  tell(runtime::CommandKind::cancel, place, {});
}

void AsyncEngine::owe_mask(int64_t place) {
  const RequestId id = work_in(place).id;
  const auto is_it = [&](const OwedMask& one) { return one.place == place && one.id == id; };
  if (std::ranges::any_of(owed_, is_it)) return;  // it began anew before the last one was written
  owed_.push_back({place, id});
  owes_.store(true, std::memory_order_relaxed);
  count_masks();
}

void AsyncEngine::count_masks() {
  if (!is_launched_) return;
  const auto has_grammar = [](const WorkPointer& work) { return work != nullptr && work->walk != nullptr; };
  const auto sequences = static_cast<size_t>(std::ranges::count_if(places_, has_grammar));
  if (sequences == 0 && !had_masks_) return;
  had_masks_ = sequences > 0;
  MaskTable(*engine_.machine_, engine_.config().vocab_size).set_owed(sequences, owed_.size());
}

void AsyncEngine::tell(runtime::CommandKind kind, int64_t place,
                       const std::array<int32_t, batch::kRequestFields>& fields) {
  runtime::Command command{static_cast<uint32_t>(kind), static_cast<uint32_t>(place), {}};
  std::ranges::copy(fields, command.fields);
  late_.push_back(command);
}

void AsyncEngine::post_late() {
  while (!late_.empty() && engine_.machine_->post(late_.front())) late_.pop_front();
}

void AsyncEngine::send(const char* table, int64_t place, int64_t line, int64_t begin, int64_t end) {
  constexpr int64_t kBytes = 4;  // of any table's element
  if (begin < end) engine_.machine_->send(table, (place * line + begin) * kBytes, (end - begin) * kBytes);
}

}  // namespace megalith::engine
