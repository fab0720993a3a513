// Headers of kernels/ into one text, as a generated source needs them: each once, those it includes before it. Their own #include
// and #pragma once lines go.
#pragma once

#include <map>
#include <set>
#include <string>

namespace megalith::codegen {

class Embedder {
 public:
  /// `replaced`: headers that others include, and what takes their place (Dialect::replaced). Must outlive it.
  explicit Embedder(const std::map<std::string, std::string>& replaced) : replaced_(replaced) {}

  /// "kernels/cpu/prelude.h".
  void add(const std::string& wanted);
  /// Another one has it.
  void leave_out(const std::string& name) { done_.insert(name); }
  const std::string& text() const { return text_; }

 private:
  const std::map<std::string, std::string>& replaced_;
  std::set<std::string> done_;
  std::string text_;
};

}  // namespace megalith::codegen
