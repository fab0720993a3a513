// Masks on their way from grammars to a kernel: of each place the tokens that its sequence may have next, which `sampling` waits
// for (runtime/batch.h, kMasked). The host learns of a token by the mail, and writes the mask for the next one while the kernel
// works on it, so that a mask in time costs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "megalith/engine/batch_block.h"
#include "megalith/engine/machine.h"

namespace megalith::engine {

/// A sequence on its way through its grammar. Of one thread at a time.
class GrammarWalk {
 public:
  /// `tokens`: of the prompt. `stop_tokens`: the model's.
  GrammarWalk(const Request& request, int64_t tokens, const std::vector<int>& stop_tokens);
  /// The mask behind `sequence`, which has grown since. Where that cannot go on, a mask of all tokens; failure() says why.
  void mask_behind(const std::vector<int>& sequence, uint32_t* mask);
  const std::string& failure() const { return matcher_.failure(); }

 private:
  grammar::Matcher matcher_;
  size_t length_;  // of the sequence that the matcher has seen
};

/// The kernel's side of it.
class MaskTable {
 public:
  MaskTable(Machine& machine, int64_t vocab_size)
      : shared_(machine.shared()), words_(grammar::mask_words(vocab_size)) {}

  int64_t words() const { return words_; }
  /// The place's next mask is yet to be written, whatever stood there. Before the kernel is told of its sequence.
  void clear(int64_t place) { runtime::mask_publish(shared_.mask_lengths + place, 0); }
  /// The mask behind `length` tokens. Only of a place that has a sequence, whose token before the kernel has told of.
  void publish(int64_t place, const std::vector<uint32_t>& mask, int64_t length);
  /// For the watchdog: how many sequences have masks, and how many of these are being worked on.
  void set_owed(size_t sequences, size_t masks);

 private:
  const Shared shared_;
  const int64_t words_;
};

}  // namespace megalith::engine
