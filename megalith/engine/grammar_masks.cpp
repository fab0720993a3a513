#include "megalith/engine/grammar_masks.h"

#include <algorithm>

namespace megalith::engine {

GrammarWalk::GrammarWalk(const Request& request, int64_t tokens, const std::vector<int>& stop_tokens)
    : matcher_(request.grammar, ends_of(request, stop_tokens)), length_(static_cast<size_t>(tokens)) {}

void GrammarWalk::mask_behind(const std::vector<int>& sequence, uint32_t* mask) {
  while (length_ < sequence.size() && matcher_.accept(sequence[length_])) ++length_;
  matcher_.fill(mask);
}

void MaskTable::publish(int64_t place, const std::vector<uint32_t>& mask, int64_t length) {
  std::ranges::copy(mask, shared_.masks + place * words_);
  runtime::mask_publish(shared_.mask_lengths + place, static_cast<uint32_t>(length));
}

void MaskTable::set_owed(size_t sequences, size_t masks) {
  runtime::store_relaxed(&shared_.mailbox->masks_owed, sequences > 0 ? static_cast<uint32_t>(1 + masks) : 0);
}

}  // namespace megalith::engine
