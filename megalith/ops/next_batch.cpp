#include <algorithm>
#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/graph/operator.h"
#include "megalith/kernels/drafts.h"
#include "megalith/kernels/next_batch_layout.h"
#include "megalith/loop/interpret.h"
#include "megalith/ops/draft_reference.h"

namespace megalith::ops {

using graph::operator_;

namespace {

// The same decisions as kernels/cpu/next_batch.h, on arrays.
class NextBatchReference {
 public:
  NextBatchReference(const loop::Binding& binding, loop::Arrays& arrays)
      : arrays_(arrays),
        num_requests_(binding.sizes.at("N")),
        num_slots_(binding.sizes.at("R")),
        room_(binding.sizes.at("T")),
        text_(binding.sizes.at("W") / num_requests_),
        most_drafts_(static_cast<int64_t>(binding.attributes.at("draft_tokens"))),
        least_match_(static_cast<int64_t>(binding.attributes.at("draft_match"))) {}

  /// `admits`: requests of the tables, and none of the mailbox.
  void run(bool admits) {
    if (state(1) != 0) {
      ++state(2);
      for (int64_t r = 0; r < num_slots_; ++r)
        if (slot(0, r) >= 0 && !take_in(r)) slot(0, r) = -1;
    }
    state(1) = 1;
    for (int64_t r = 0; r < num_slots_; ++r) {
      if (admits && slot(0, r) < 0) admit(r);
      slot(3, r) = 0;
    }
    lay_out();
  }

 private:
  double& at(const char* name, int64_t i) { return loop::element(arrays_, name, {i}); }
  double& slot(int64_t field, int64_t r) { return at("slots", field * num_slots_ + r); }
  double& state(int64_t field) { return at("slots", 4 * num_slots_ + field); }
  double& token(int64_t request, int64_t s) { return at("tokens", request * text_ + s); }
  int64_t whole(const char* name, int64_t i) { return static_cast<int64_t>(at(name, i)); }

  bool is_last(double token) {
    const std::vector<double>& config = arrays_.at("config").values;
    return std::find(config.begin() + 4, config.end(), token) != config.end() || token < 0 || token >= config[3];
  }

  bool take_in(int64_t r) {
    const auto request = static_cast<int64_t>(slot(0, r));
    const int64_t first = whole("first_row", r), end = whole("first_row", r + 1);
    if (first == end) return true;
    const bool makes_tokens = at("step", request) >= slot(1, r) - 1;
    int64_t row = makes_tokens && most_drafts_ > 0 ? first : end - 1;
    at("step", request) += static_cast<double>(row + 1 - first);
    if (at("step", request) < slot(1, r)) return true;
    state(3) += row + 1 < end;
    state(4) += static_cast<double>(end - row - 1);
    for (;; ++row, ++at("step", request), ++state(5)) {
      const double made = at("output", row);
      token(request, whole("step", request)) = made;
      if (is_last(made) || at("step", request) + 1 >= slot(2, r)) return false;
      if (row + 1 == end || at("input", row + 1) != made) return true;
    }
  }

  void admit(int64_t r) {
    for (bool is_over = false; !is_over && state(0) < static_cast<double>(num_requests_);) {
      const auto request = static_cast<int64_t>(state(0)++);
      is_over = num_requests_ <= num_slots_;
      if (at("step", request) >= at("prompt_length", request)) continue;
      slot(0, r) = static_cast<double>(request);
      slot(1, r) = at("prompt_length", request);
      slot(2, r) = at("config", 0);
      return;
    }
  }

  // Where what may follow slot r's text stands in it; 0: nowhere.
  int64_t drafts_begin(int64_t r) {
    const auto request = static_cast<int64_t>(slot(0, r));
    const auto [begin, same] =
        find_draft_place([&](int64_t s) { return token(request, s); }, whole("step", request) + 1, least_match_);
    if (begin > 0)
      slot(3, r) = static_cast<int32_t>(kernels::match_of(static_cast<int>(same), static_cast<int>(begin - 1)));
    return begin;
  }

  void lay_out() {
    std::vector<int64_t> left(static_cast<size_t>(num_slots_), 0), begins = left, most = left;
    int64_t spare = room_, matches = 0;
    for (int64_t r = 0; r < num_slots_; ++r) spare -= slot(0, r) >= 0;
    spare = std::max<int64_t>(spare, 0);
    int64_t for_drafts = spare;
    for (int64_t r = 0; r < num_slots_; ++r) {
      if (slot(0, r) < 0) continue;
      const auto i = static_cast<size_t>(r);
      const int64_t step = whole("step", static_cast<int64_t>(slot(0, r))), limit = static_cast<int64_t>(slot(2, r));
      left[i] = std::max<int64_t>(static_cast<int64_t>(slot(1, r)) - step - 1, 0);
      for_drafts -= std::min(left[i], for_drafts);
      most[i] = left[i] > 0 ? 0 : std::min({most_drafts_, limit - 2 - step, text_ - 2 - step});
      if (most[i] > 0) begins[i] = drafts_begin(r);
      matches += begins[i] > 0;
    }
    const int64_t page_size = whole("config", 1), pages_per_slot = whole("config", 2);
    MEGALITH_CHECK(page_size > 0, "config has pages of {} positions", page_size);
    int64_t rows = 0, pages = 0;
    for (int64_t r = 0; r < num_slots_; ++r) {
      const auto i = static_cast<size_t>(r);
      int64_t count = 0, num_pages = 0;
      if (slot(0, r) >= 0 && rows < room_) {
        const auto request = static_cast<int64_t>(slot(0, r));
        const int64_t step = whole("step", request);
        int64_t drafts = 0;
        if (begins[i] > 0) drafts = std::min(most[i], for_drafts / matches--);
        for_drafts -= drafts;
        const int64_t more = std::min(left[i], spare);
        spare -= more + drafts;
        for (int64_t n = 0; n <= more; ++n) at("input", rows + n) = token(request, step + n);
        // What ends at the text's end repeats from there.
        for (int64_t n = 0; n < drafts; ++n)
          at("input", rows + 1 + n) = token(request, begins[i] + n % (step + 1 - begins[i]));
        count = 1 + more + drafts;
        num_pages = (step + count + page_size - 1) / page_size;
        for (int64_t n = 0; n < num_pages; ++n) at("pages", pages + n) = static_cast<double>(r * pages_per_slot + n);
        at("last_length", r) = static_cast<double>(step + count - (num_pages - 1) * page_size);
      }
      rows += count;
      pages += num_pages;
      at("num_new", r) = static_cast<double>(count);
      at("first_row", r + 1) = static_cast<double>(rows);
      at("first_page", r + 1) = static_cast<double>(pages);
    }
    at("first_row", 0) = at("first_page", 0) = 0;
    at("stop", 0) = rows == 0;
  }

  loop::Arrays& arrays_;
  const int64_t num_requests_, num_slots_, room_, text_, most_drafts_, least_match_;
};

// What both operators work on.
operator_ over_tables(const char* name, const char* doc) {
  operator_ op(name, doc);
  op.input("output", {"T"}, DType::i32)
      .input("prompt_length", {"N"}, DType::i32)
      .input("config", {"20"}, DType::i32)
      .inout("tokens", {"W"}, DType::i32)
      .inout("step", {"N"}, DType::i32)
      .inout("slots", {"V"}, DType::i32)
      .inout("input", {"T"}, DType::i32)
      .inout("first_row", {"I"}, DType::i32)
      .inout("first_page", {"I"}, DType::i32)
      .inout("pages", {"P"}, DType::i32)
      .inout("last_length", {"R"}, DType::i32)
      .inout("num_new", {"R"}, DType::i32)
      .inout("stop", {"1"}, DType::i32)
      .attribute("draft_tokens", 0)
      .attribute("draft_match", 0);
  return op;
}

constexpr const char* kRest = R"(
        step[n]        = step[n]
        slots[v]       = slots[v]
        input[t]       = input[t]
        first_row[i]   = first_row[i]
        first_page[i]  = first_page[i]
        pages[p]       = pages[p]
        last_length[r] = last_length[r]
        num_new[r]     = num_new[r]
        stop[0]        = stop[0]
      )";

int64_t area_bytes(const graph::BodyQuery&) { return int64_t{kernels::kNextBatchAreaBytes}; }

}  // namespace

/// Ends an iteration of a token loop over tables that stand one behind the other (paged_rows): takes in the tokens that
/// it made, ends requests and admits others, lays out the rows and pages of the next one. N requests have a text of
/// W / N tokens each, R of them work at a time, in a slot each; T rows are there at most. With `draft_tokens` a request has so
/// many drafts at most (kernels/drafts.h), if `draft_match` tokens of its text say them. Bookkeeping is beyond a loop
/// kernel, so this one only says what it touches.
graph::Operator next_batch() {
  return over_tables("next_batch",
                     "scheduler step: takes in new tokens, ends and admits requests, lays out the next iteration")
      .loops(std::string(R"(
        { [t, n, c, w, v, i, p, r] : 0 <= t < T and 0 <= n < N and 0 <= c < 20 and 0 <= w < W and 0 <= v < V and 0 <= i < I and 0 <= p < P and 0 <= r < R }
        tokens[w]      = tokens[w] + sum(t, output[t]) + sum(n, prompt_length[n]) + sum(c, config[c]))") +
             kRest)
      .reference([](const loop::Binding& binding, loop::Arrays& arrays) {
        NextBatchReference(binding, arrays).run(/*admits=*/true);
      })
      .body("cpu", "next_batch.h", "next_batch")
      .body({.target = "cuda",
             .file = "scheduler/next_batch.cuh",
             .name = "next_batch_by_block",
             .area_bytes = area_bytes});
}

/// The same of a loop that takes requests while it runs: through `mailbox`, where it tells each token, with prompts in `inbox`, a
/// row of W / N tokens each. Slot r has row r. The reference has no mailbox: no requests come.
graph::Operator serve_batch() {
  return over_tables("serve_batch",
                     "scheduler step: takes in new tokens, ends requests and takes others from the mailbox, lays out "
                     "the next iteration")
      .inout("mailbox", {"M"}, DType::i32)
      .inout("inbox", {"W"}, DType::i32)
      .loops(std::string(R"(
        { [t, n, c, w, v, i, p, r, m] : 0 <= t < T and 0 <= n < N and 0 <= c < 20 and 0 <= w < W and 0 <= v < V and 0 <= i < I and 0 <= p < P and 0 <= r < R and 0 <= m < M }
        tokens[w]      = tokens[w] + sum(t, output[t]) + sum(n, prompt_length[n]) + sum(c, config[c])
        mailbox[m]     = mailbox[m]
        inbox[w]       = inbox[w])") +
             kRest)
      .reference([](const loop::Binding& binding, loop::Arrays& arrays) {
        NextBatchReference(binding, arrays).run(/*admits=*/false);
      })
      .body("cpu", "serve_batch.h", "serve_batch")
      .body({.target = "cuda",
             .file = "scheduler/serve_batch.cuh",
             .name = "serve_batch_by_block",
             .area_bytes = area_bytes});
}

}  // namespace megalith::ops
