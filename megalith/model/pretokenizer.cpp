#include "megalith/model/pretokenizer.h"

#include "megalith/base/error.h"
#include "megalith/model/json.h"

namespace megalith {

namespace {

constexpr size_t kMostSteps = 32;

// GPT-2's words: contractions, letters, digits and the rest, each with one space before it; then runs of white space.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool flag(const JsonValue& value, const char* key, bool absent) {
  auto member = value.find(key);
  return member ? member->boolean() : absent;
}

std::string read_pattern(const JsonValue& value) {
  const JsonValue pattern = value.at("pattern");
  if (auto regex = pattern.find("Regex")) return regex->string();
  if (auto text = pattern.find("String")) return Regex::quote(text->string());
  pattern.fail("has neither \"Regex\" nor \"String\"");
}

Regex compile(const JsonValue& step, const std::string& pattern) {
  try {
    return Regex(pattern);
  } catch (const UserError& error) { step.fail(fmt::format("cannot be used: {}", error.what())); }
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
  if (!result.is_byte_level_)
    value.fail("does not end with ByteLevel: only byte-level tokenizers are supported (Qwen, Llama 3, GPT-2)");
  return result;
}

void PreTokenizer::add_step(const JsonValue& value) {
  const JsonValue type = value.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    value.at("pretokenizers").each_element([&](const JsonValue& part) { add_step(part); });
    return;
  }
  if (is_byte_level_) type.fail(fmt::format("is {}, but nothing may follow ByteLevel", type.excerpt()));
  if (steps_.size() >= kMostSteps) value.fail(fmt::format("is one of more than {} steps", kMostSteps));

  Step step;
  if (name == "ByteLevel") {
    is_byte_level_ = true;
    step.add_prefix_space = flag(value, "add_prefix_space", true);
    if (flag(value, "use_regex", true)) step.pattern.emplace_back(kByteLevelPattern);
  } else if (name == "Split") {
    const std::string pattern = read_pattern(value);
    if (pattern.empty()) return;  // splits nothing
    step.pattern.push_back(compile(value, pattern));
    step.behavior = read_behavior(value.at("behavior"));
    step.invert = flag(value, "invert", false);
  } else if (name == "Digits") {
    step.pattern.emplace_back(R"(\p{N})");
    step.behavior = flag(value, "individual_digits", false) ? Behavior::isolated : Behavior::contiguous;
  } else {
    type.fail(fmt::format("is {}, supported are Sequence, Split, Digits, ByteLevel", type.excerpt()));
  }
  steps_.push_back(std::move(step));
}

// Pieces that cover `text` but for what is removed; some may be empty.
std::vector<PreTokenizer::Piece> PreTokenizer::split(const Step& step, std::string_view text) {
  std::vector<Piece> pieces;
  size_t done = 0;
  step.pattern.front().each_match(text, [&](size_t begin, size_t end) {
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

void PreTokenizer::each_word(std::string_view text, const std::function<void(std::string_view)>& visit) const {
  if (!text.empty()) run(0, text, visit);
}

void PreTokenizer::run(size_t index, std::string_view text, const std::function<void(std::string_view)>& visit) const {
  if (index == steps_.size()) return visit(text);
  const Step& step = steps_[index];
  std::string prefixed;
  if (step.add_prefix_space && !text.starts_with(' ')) {
    prefixed = fmt::format(" {}", text);
    text = prefixed;
  }
  if (step.pattern.empty()) return run(index + 1, text, visit);
  for (const Piece& piece : split(step, text))
    if (piece.begin != piece.end) run(index + 1, text.substr(piece.begin, piece.end - piece.begin), visit);
}

}  // namespace megalith
