#include <algorithm>
#include <map>
#include <vector>

#include "megalith/graph/operator.h"
#include "megalith/loop/interpret.h"
#include "megalith/runtime/batch.h"

namespace megalith::ops {

using graph::operator_;

namespace {

// What the references of both operators read and write.
class DraftReference {
 public:
  DraftReference(const loop::Binding& binding, loop::Arrays& arrays) : binding_(binding), arrays_(arrays) {}

  void lay_out_rows() {
    std::map<int64_t, int64_t> starts;  // by request
    std::vector<int64_t> requests;      // as their rows begin
    for (int64_t r = 0; r < binding_.sizes.at("T"); ++r) {
      const int64_t request = whole("row_request", r);
      if (starts.emplace(request, whole("row_start", r)).second) requests.push_back(request);
    }
    int64_t rows = 0;
    for (const int64_t n : requests) {
      const int64_t start = starts.at(n), known = std::min(field(n, batch::kLength), field(n, batch::kDone));
      const bool has_room = known - start < std::ssize(arrays_.at("draft_token").values) - rows;
      const int64_t first = start > field(n, batch::kPrompt) && has_room ? start - 1 : start;
      for (int64_t s = first; s < known; ++s, ++rows) {
        at("draft_token", rows) = within(loop::element(arrays_, "history", {n, s}), "draft_vocabulary");
        at("draft_request", rows) = static_cast<double>(n);
        at("draft_position", rows) = static_cast<double>(s);
        at("draft_start", rows) = static_cast<double>(first);
      }
      at("last_row", n) = static_cast<double>(rows - 1);
    }
    std::ranges::stable_sort(requests, std::greater(), [&](int64_t n) { return drafts(n); });
    std::ranges::fill(arrays_.at("draft_counts").values, 0);
    at("draft_counts", 0) = static_cast<double>(rows);
    for (size_t i = 0; i < requests.size() && drafts(requests[i]) > 0; ++i) {
      at("drafter", static_cast<int64_t>(i)) = static_cast<double>(requests[i]);
      at("drafter_row", static_cast<int64_t>(i)) = at("last_row", requests[i]);
      for (int64_t step = 0; step < drafts(requests[i]); ++step) at("draft_counts", 1 + step) += 1;
    }
  }

  void take_token() {
    for (int64_t i = 0; i < binding_.sizes.at("B"); ++i) {
      const int64_t n = whole("drafter", i), position = field(n, batch::kLength) + attribute("step");
      const double token = within(at("best", i), "vocabulary");
      loop::element(arrays_, "history", {n, position}) = token;
      for (int64_t r = 0; r < binding_.sizes.at("T"); ++r)
        if (whole("row_request", r) == n && whole("row_position", r) == position) at("row_token", r) = token;
      at("next_token", i) = within(token, "draft_vocabulary");
      at("next_request", i) = static_cast<double>(n);
      at("next_position", i) = at("next_start", i) = static_cast<double>(position);
    }
  }

 private:
  double& at(const char* name, int64_t i) { return loop::element(arrays_, name, {i}); }
  int64_t whole(const char* name, int64_t i) { return static_cast<int64_t>(at(name, i)); }
  int64_t field(int64_t n, int f) { return static_cast<int64_t>(loop::element(arrays_, "requests", {n, f})); }
  int64_t drafts(int64_t n) { return std::max<int64_t>(field(n, batch::kDone) - field(n, batch::kLength), 0); }
  int64_t attribute(const char* name) const { return static_cast<int64_t>(binding_.attributes.at(name)); }
  double within(double token, const char* vocabulary) const {
    return token >= 0 && token < static_cast<double>(attribute(vocabulary)) ? token : 0;
  }

  const loop::Binding& binding_;
  loop::Arrays& arrays_;
};

}  // namespace

/// Begins an iteration with a draft model (model/draft_model.h): lays out the rows of its first step, D of them at most, with where
/// those of their request begin, and says which requests have drafts, those with more first. `draft_counts`: rows, and of each step the requests that have a draft of it.
/// Tokens that are not of the draft model's vocabulary are 0. Bookkeeping is beyond a loop kernel, so this one only says what it
/// touches.
graph::Operator draft_rows() {
  return operator_("draft_rows", "lays out the rows of a draft model's first step")
      .input("requests", {"N", "8"}, DType::i32)
      .input("history", {"N", "S"}, DType::i32)
      .input("row_request", {"T"}, DType::i32)
      .input("row_position", {"T"}, DType::i32)
      .input("row_start", {"T"}, DType::i32)
      .inout("draft_counts", {"C"}, DType::i32)
      .inout("draft_token", {"D"}, DType::i32)
      .inout("draft_request", {"D"}, DType::i32)
      .inout("draft_position", {"D"}, DType::i32)
      .inout("draft_start", {"D"}, DType::i32)
      .inout("last_row", {"N"}, DType::i32)
      .inout("drafter", {"N"}, DType::i32)
      .inout("drafter_row", {"B"}, DType::i32)
      .attribute("draft_vocabulary", 0)
      .loops(R"(
        { [n, f, s, t, c, d, b] : 0 <= n < N and 0 <= f < 8 and 0 <= s < S and 0 <= t < T and 0 <= c < C and 0 <= d < D and 0 <= b < B }
        draft_counts[c]   = draft_counts[c] + sum(n, sum(f, requests[n, f]) + sum(s, history[n, s])) + sum(t, row_request[t] + row_position[t] + row_start[t])
        draft_token[d]    = draft_token[d]
        draft_request[d]  = draft_request[d]
        draft_position[d] = draft_position[d]
        draft_start[d]    = draft_start[d]
        last_row[n]       = last_row[n]
        drafter[n]        = drafter[n]
        drafter_row[b]    = drafter_row[b]
      )")
      .reference(
          [](const loop::Binding& binding, loop::Arrays& arrays) { DraftReference(binding, arrays).lay_out_rows(); })
      .body("cpu", "draft_model.h", "draft_rows")
      .body({.target = "cuda",
             .file = "scheduler/draft_model.cuh",
             .name = "draft_rows_by_block",
             .area_bytes = [](const graph::BodyQuery& q) {
               const auto size = [&](const char* name) { return q.sizes.at(name); };
               return 4 *
                      ((batch::kRequestFields + 2) * size("N") + 3 * (size("T") + size("D")) + size("B") + size("C"));
             }});
}

/// Ends a step of a draft model: its tokens, draft number `step` of each of B requests, go behind the last token of each, into their
/// rows of the iteration, and to the next step.
graph::Operator draft_token() {
  return operator_("draft_token", "puts the tokens of a draft model's step where they are worked on")
      .input("best", {"B"}, DType::i32)
      .input("drafter", {"N"}, DType::i32)
      .input("requests", {"N", "8"}, DType::i32)
      .input("row_request", {"T"}, DType::i32)
      .input("row_position", {"T"}, DType::i32)
      .inout("history", {"N", "S"}, DType::i32)
      .inout("row_token", {"T"}, DType::i32)
      .inout("next_token", {"M"}, DType::i32)
      .inout("next_request", {"M"}, DType::i32)
      .inout("next_position", {"M"}, DType::i32)
      .inout("next_start", {"M"}, DType::i32)
      .attribute("step", 0)
      .attribute("vocabulary", 0)
      .attribute("draft_vocabulary", 0)
      .loops(R"(
        { [n, f, s, t, b, m] : 0 <= n < N and 0 <= f < 8 and 0 <= s < S and 0 <= t < T and 0 <= b < B and 0 <= m < M }
        history[n, s]    = history[n, s] + sum(b, best[b]) + drafter[n] + sum(f, requests[n, f]) + sum(t, row_request[t] + row_position[t])
        row_token[t]     = row_token[t]
        next_token[m]    = next_token[m]
        next_request[m]  = next_request[m]
        next_position[m] = next_position[m]
        next_start[m]    = next_start[m]
      )")
      .reference(
          [](const loop::Binding& binding, loop::Arrays& arrays) { DraftReference(binding, arrays).take_token(); })
      .body("cpu", "draft_model.h", "draft_token")
      .body({.target = "cuda",
             .file = "scheduler/draft_model.cuh",
             .name = "draft_token_by_block",
             .area_bytes = [](const graph::BodyQuery& q) { return 12 * q.sizes.at("B"); }});
}

}  // namespace megalith::ops
