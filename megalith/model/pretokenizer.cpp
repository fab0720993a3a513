#include "megalith/model/pretokenizer.h"

#include "megalith/base/error.h"
#include "megalith/model/encode_budget.h"
#include "megalith/model/json.h"
#include "megalith/model/utf8.h"

namespace megalith {

namespace {

constexpr size_t kMaxSplits = 32;

// GPT-2's words: contractions, letters, digits and the rest, each with one space before it; then runs of white space.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool flag(const JsonValue& value, const char* key, bool absent) {
  auto member = value.find(key);
  return member ? member->boolean() : absent;
}

Regex read_pattern(const JsonValue& value) {
  const JsonValue pattern = value.at("pattern");
  if (auto regex = pattern.find("Regex")) return Regex::from_json(*regex);
  if (auto text = pattern.find("String")) return Regex(Regex::quote(text->string()));
  pattern.fail("has neither \"Regex\" nor \"String\"");
}

bool splits_nothing(const JsonValue& value) {
  const JsonValue pattern = value.at("pattern");
  auto text = pattern.find("Regex");
  if (!text) text = pattern.find("String");
  return text && text->string().empty();
}

}  // namespace

PreTokenizer::Behavior PreTokenizer::read_behavior(const JsonValue& value) {
  const std::string& name = value.string();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  value.fail(fmt::format("is {}, supported are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
                         value.excerpt()));
}

PreTokenizer PreTokenizer::from_json(const JsonValue& value) {
  PreTokenizer result;
  result.add_step(value);
  return result;
}

// A space becomes the file's character for it, usually "▁", which begins a word. Older files say add_prefix_space.
PreTokenizer::Step PreTokenizer::read_metaspace(const JsonValue& value) {
  Step step;
  step.metaspace = value.at("replacement").string();
  if (utf8_next(step.metaspace) != std::ssize(step.metaspace) || step.metaspace.empty())
    value.at("replacement").fail(fmt::format("is {}, want one character", value.at("replacement").excerpt()));
  const auto scheme = value.find("prepend_scheme");
  const std::string name = scheme ? scheme->string() : flag(value, "add_prefix_space", true) ? "always" : "never";
  if (name == "always") {
    step.prepend = Prepend::always;
  } else if (name == "first") {
    step.prepend = Prepend::first;
  } else if (name != "never") {
    scheme->fail(fmt::format("is {}, supported are \"always\", \"first\" and \"never\"", scheme->excerpt()));
  }
  if (name != "never" && !flag(value, "add_prefix_space", true))
    value.fail(fmt::format("has the prepend_scheme \"{}\", but add_prefix_space is false: remove one of them", name));
  if (flag(value, "split", true)) {
    step.pattern.emplace_back(Regex::quote(step.metaspace));
    step.behavior = Behavior::merged_with_next;
  }
  return step;
}

void PreTokenizer::add_step(const JsonValue& value) {
  const JsonValue type = value.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    value.at("pretokenizers").each_element([&](const JsonValue& part) { add_step(part); });
    return;
  }
  if (is_byte_level_) type.fail(fmt::format("is {}, but nothing may follow ByteLevel", type.excerpt()));
  if (steps_.size() >= kMaxSplits) value.fail(fmt::format("is one of more than {} steps", kMaxSplits));

  Step step;
  if (name == "ByteLevel") {
    is_byte_level_ = true;
    step.add_prefix_space = flag(value, "add_prefix_space", true);
    if (flag(value, "use_regex", true)) step.pattern.emplace_back(kByteLevelPattern);
  } else if (name == "Split") {
    if (splits_nothing(value)) return;
    step.pattern.push_back(read_pattern(value));
    step.behavior = read_behavior(value.at("behavior"));
    step.invert = flag(value, "invert", false);
  } else if (name == "Digits") {
    step.pattern.emplace_back(R"(\p{N})");
    step.behavior = flag(value, "individual_digits", false) ? Behavior::isolated : Behavior::contiguous;
  } else if (name == "Metaspace") {
    step = read_metaspace(value);
  } else {
    type.fail(fmt::format("is {}, supported are Sequence, Split, Digits, Metaspace, ByteLevel", type.excerpt()));
  }
  steps_.push_back(std::move(step));
}

// Pieces that cover `text` but for what is removed; some may be empty.
std::vector<PreTokenizer::Piece> PreTokenizer::split(const Step& step, std::string_view text, EncodeBudget& budget) {
  std::vector<Piece> pieces;
  size_t done = 0;
  step.pattern.front().each_match(text, budget, [&](size_t begin, size_t end) {
    if (done != begin) pieces.push_back({done, begin, step.invert});
    pieces.push_back({begin, end, !step.invert});
    done = end;
  });
  if (done != text.size()) pieces.push_back({done, text.size(), step.invert});

  std::vector<Piece> merged;
  bool previous_match = false;
  switch (step.behavior) {
    case Behavior::isolated: return pieces;
    case Behavior::removed: std::erase_if(pieces, [](const Piece& piece) { return piece.is_match; }); return pieces;
    case Behavior::contiguous:
      for (const Piece& piece : pieces) {
        if (!merged.empty() && piece.is_match == merged.back().is_match)
          merged.back().end = piece.end;
        else
          merged.push_back(piece);
      }
      return merged;
    case Behavior::merged_with_previous:  // of two matches in a row, the second begins a piece
      for (const Piece& piece : pieces) {
        if (piece.is_match && !previous_match && !merged.empty())
          merged.back().end = piece.end;
        else
          merged.push_back(piece);
        previous_match = piece.is_match;
      }
      return merged;
    case Behavior::merged_with_next:  // of two matches in a row, the first is a piece
      for (const Piece& piece : pieces) {
        if (previous_match && !piece.is_match)
          merged.back().end = piece.end;
        else
          merged.push_back(piece);
        previous_match = piece.is_match;
      }
      return merged;
  }
  return pieces;
}

void PreTokenizer::each_word(std::string_view text, bool at_start, EncodeBudget& budget,
                             const std::function<void(std::string_view)>& visit) const {
  if (!text.empty()) run(0, text, at_start, budget, visit);
}

void PreTokenizer::run(size_t index, std::string_view text, bool at_start, EncodeBudget& budget,
                       const std::function<void(std::string_view)>& visit) const {
  if (index == steps_.size()) return visit(text);
  budget.check_bytes(text.size());
  budget.charge_steps(1);
  const Step& step = steps_[index];
  std::string prefixed;
  if (step.add_prefix_space && !text.starts_with(' ')) {
    prefixed = fmt::format(" {}", text);
    text = prefixed;
  }
  if (!step.metaspace.empty()) {
    std::string spaced;
    for (char c : text) c == ' ' ? spaced += step.metaspace : spaced += c;
    const bool prepend = step.prepend == Prepend::always || (step.prepend == Prepend::first && at_start);
    prefixed = prepend && !spaced.starts_with(step.metaspace) ? step.metaspace + spaced : std::move(spaced);
    text = prefixed;
  }
  if (step.pattern.empty()) return run(index + 1, text, at_start, budget, visit);
  for (const Piece& piece : split(step, text, budget))
    if (piece.begin != piece.end)
      run(index + 1, text.substr(piece.begin, piece.end - piece.begin), at_start && piece.begin == 0, budget, visit);
}

}  // namespace megalith
