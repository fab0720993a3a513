// Answers that a thread keeps by the text of the question. Scheduling asks the same of a kernel after each step, and
// again when code is written: most of its domains and instructions are what they were.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>

namespace megalith::loop {

/// At most `most` answers; then all are forgotten, so that a process that lives long does not grow. What is kept must
/// follow from the text alone. isl objects may be kept if isl_context() was called before: they go before it does.
template <class Answer>
class Recall {
 public:
  explicit Recall(size_t most) : most_(most) {}

  /// Null if it is not known. Holds until the next keep().
  const Answer* find(const std::string& question) const {
    const auto found = answers_.find(question);
    return found == answers_.end() ? nullptr : &found->second;
  }
  void keep(std::string question, Answer answer) {
    if (answers_.size() >= most_) answers_.clear();
    answers_.insert_or_assign(std::move(question), std::move(answer));
  }

 private:
  size_t most_;
  std::unordered_map<std::string, Answer> answers_;
};

}  // namespace megalith::loop
