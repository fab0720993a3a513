#include "megalith/model/token_decoder.h"

#include "megalith/base/error.h"
#include "megalith/model/json.h"
#include "megalith/model/text_find.h"

namespace megalith {

namespace {

constexpr int64_t kMaxStripped = 1024;
constexpr size_t kMaxReplaces = 16;
// What replacing may make of a token: "▁" becomes a space, which is shorter.
constexpr size_t kMaxGrowth = 4;
constexpr size_t kMaxGrowthOfAny = 64;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "<0x0A>".
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hex_digit(token[3]), low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, size_t most) {
  std::string result;
  size_t done = 0;
  for (size_t at; (at = text_find(text, from, done)) != std::string_view::npos; done = at + from.size()) {
    result += text.substr(done, at - done);
    result += to;
    MEGALITH_CHECK(result.size() <= most, "the tokenizer's \"decoder\" makes more than {} bytes of a token", most);
  }
  return result += text.substr(done);
}

// Of a row of bytes that ended.
std::string text_of_bytes(const std::string& row) {
  if (utf8_is_valid(row)) return row;
  std::string text;
  for (size_t i = 0; i < row.size(); ++i) text += "\uFFFD";
  return text;
}

}  // namespace

TokenDecoder TokenDecoder::from_json(const JsonValue& value, bool is_byte_level) {
  TokenDecoder result;
  result.is_byte_level_ = is_byte_level;
  if (is_byte_level) {
    JsonValue part = value;
    if (value.at("type").string() == "Sequence") {
      const std::vector<JsonValue> parts = value.at("decoders").elements();
      if (parts.size() != 1) value.fail(fmt::format("is a sequence of {} decoders, supported is one", parts.size()));
      part = parts[0];
    }
    if (const JsonValue type = part.at("type"); type.string() != "ByteLevel")
      type.fail(fmt::format("is {}, supported is \"ByteLevel\", as the pre-tokenizer", type.excerpt()));
  } else {
    result.add_step(value);
  }
  return result;
}

void TokenDecoder::add_step(const JsonValue& value) {
  const JsonValue type = value.at("type");
  const std::string& name = type.string();
  auto check_order = [&](bool in_order) {
    if (!in_order)
      type.fail(fmt::format("is {}, but stands too late: supported is the order Replace, ByteFallback, Fuse, Strip",
                            type.excerpt()));
  };
  if (name == "Sequence") {
    value.at("decoders").each_element([&](const JsonValue& part) { add_step(part); });
  } else if (name == "Replace") {
    check_order(!byte_fallback_ && !fuses_);
    if (replaces_.size() >= kMaxReplaces) value.fail(fmt::format("is one of more than {} steps", kMaxReplaces));
    const std::string& from = value.at("pattern").at("String").string();
    if (!from.empty()) replaces_.push_back({from, value.at("content").string()});
  } else if (name == "Metaspace") {
    check_order(!byte_fallback_ && !fuses_ && replaces_.empty() && metaspace_.empty());
    metaspace_ = value.at("replacement").string();
    if (metaspace_.empty()) value.at("replacement").fail("is empty, want one character");
    const auto scheme = value.find("prepend_scheme");
    const auto prefix = value.find("add_prefix_space");
    metaspace_drops_first_ = scheme ? scheme->string() != "never" : !prefix || prefix->boolean();
  } else if (name == "ByteFallback") {
    check_order(!fuses_);
    byte_fallback_ = true;
  } else if (name == "Fuse") {
    check_order(strip_start_ == 0);
    fuses_ = true;
  } else if (name == "Strip") {
    if (!fuses_) type.fail("is \"Strip\" without \"Fuse\" before it, which is not supported");
    check_order(strip_start_ == 0);
    strip_content_ = value.at("content").string();
    if (strip_content_.empty()) value.at("content").fail("is empty, want one character");
    strip_start_ = value.at("start").integer(0, kMaxStripped);
    if (const JsonValue stop = value.at("stop"); stop.integer() != 0)
      stop.fail(fmt::format("is {}, supported is 0: text could not be shown while it is made", stop.excerpt()));
  } else {
    type.fail(
        fmt::format("is {}, supported are Sequence, Replace, ByteFallback, Fuse, Strip, Metaspace, and ByteLevel "
                    "after a pre-tokenizer of that kind",
                    type.excerpt()));
  }
}

std::string TokenDecoder::replaced(std::string_view token) const {
  const size_t most = kMaxGrowth * token.size() + kMaxGrowthOfAny;
  std::string text = metaspace_.empty() ? std::string(token) : replace_all(token, metaspace_, " ", most);
  for (const Replace& replace : replaces_) text = replace_all(text, replace.from, replace.to, most);
  return text;
}

// Takes what Strip takes from the start of the whole text, of which `text` is the next part.
std::string TokenDecoder::stripped(DecoderState& state, std::string text) const {
  while (!state.is_stripped && !text.empty()) {
    if (state.num_stripped < strip_start_ && text.starts_with(strip_content_)) {
      text.erase(0, strip_content_.size());
      ++state.num_stripped;
    } else {
      state.is_stripped = true;
    }
  }
  return text;
}

std::string TokenDecoder::token_bytes(std::string_view token) const {
  if (is_byte_level_) return std::string(token);
  const std::string text = replaced(token);
  if (byte_fallback_)
    if (const auto byte = byte_of(text)) return std::string(1, *byte);
  return text;
}

std::string TokenDecoder::push(DecoderState& state, std::string_view token) const {
  if (is_byte_level_) return state.stream.push(token);
  const bool is_first = state.num_tokens++ == 0;
  const std::string text =
      is_first && metaspace_drops_first_ ? replace_all(token, metaspace_, "", token.size()) : replaced(token);
  if (byte_fallback_) {
    if (const auto byte = byte_of(text)) {
      state.byte_row += *byte;
      return "";
    }
  }
  const std::string before = text_of_bytes(state.byte_row);
  state.byte_row.clear();
  return stripped(state, before + text);
}

std::string TokenDecoder::finish(DecoderState& state) const {
  const std::string text = is_byte_level_ ? state.stream.finish() : stripped(state, text_of_bytes(state.byte_row));
  state = {};
  return text;
}

}  // namespace megalith
