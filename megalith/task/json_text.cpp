#include "megalith/task/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/json_reason.h"

namespace megalith::task {

namespace {

constexpr size_t kMaxDepth = 8;  // tasks, a task, reads, a region, box, a range: 6
constexpr size_t kMaxKeys = 64;  // bounds the search for a key that stands twice; no object of a task graph has as many
constexpr size_t kMaxValues = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxSize = (size_t{1} << 29) - 1;  // of one text or container

using Json = nlohmann::json;

}  // namespace

// Takes what the parser finds. Its own complaints are UserErrors, which leave the parser at once.
class JsonReader : public nlohmann::json_sax<Json> {
 public:
  explicit JsonReader(JsonText& to) : entries_(to.entries_), texts_(to.texts_) {}

  bool null() override { return add(JsonValue::Kind::null); }
  bool boolean(bool value) override { return add(value ? JsonValue::Kind::yes : JsonValue::Kind::no); }
  bool number_integer(number_integer_t value) override { return add(JsonValue::Kind::integer, value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add_text(JsonValue::Kind::number, std::to_string(value));
    return add(JsonValue::Kind::integer, static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t& text) override { return add_text(JsonValue::Kind::number, text); }
  bool string(string_t& text) override { return add_text(JsonValue::Kind::string, text); }
  bool binary(binary_t&) override { return false; }  // no text has it
  bool start_object(size_t) override { return open(JsonValue::Kind::object); }
  bool start_array(size_t) override { return open(JsonValue::Kind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    const auto [known, is_new] = keys_.try_emplace(text, static_cast<int64_t>(texts_.size()));
    if (is_new) texts_ += text;
    const auto first = open_keys_.begin() + static_cast<std::ptrdiff_t>(open_.back().first_key);
    MEGALITH_CHECK(std::find(first, open_keys_.end(), known->second) == open_keys_.end(),
                   "[task graph] an object of the JSON text has the key {} twice", json_summary(text));
    MEGALITH_CHECK(open_keys_.size() - open_.back().first_key < kMaxKeys,
                   "[task graph] an object of the JSON text has more than {} keys", kMaxKeys);
    open_keys_.push_back(known->second);
    push(JsonValue::Kind::string, known->second, text.size());
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    throw UserError(fmt::format("[task graph] not a JSON text: {}", json_reason(error.what())));
  }

 private:
  struct Open {
    uint32_t entry;
    size_t first_key;  // of its own among open_keys_
  };

  void push(JsonValue::Kind kind, int64_t value, size_t size) {
    MEGALITH_CHECK(entries_.size() < kMaxValues && size <= kMaxSize,
                   "[task graph] the JSON text has more than {} values, or one of more than {} bytes", kMaxValues,
                   kMaxSize);
    entries_.push_back({.value = value,
                        .next = static_cast<uint32_t>(entries_.size() + 1),
                        .kind = static_cast<uint32_t>(kind),
                        .size = static_cast<uint32_t>(size & kMaxSize)});
  }
  void count_in_container() {
    if (open_.empty()) return;
    JsonText::Entry& container = entries_[open_.back().entry];
    MEGALITH_CHECK(container.size < kMaxSize, "[task graph] the JSON text has an array of more than {} elements",
                   kMaxSize);
    ++container.size;
  }
  bool add(JsonValue::Kind kind, int64_t value = 0, size_t size = 0) {
    count_in_container();
    push(kind, value, size);
    return true;
  }
  bool add_text(JsonValue::Kind kind, std::string_view text) {
    add(kind, static_cast<int64_t>(texts_.size()), text.size());
    texts_ += text;
    return true;
  }
  bool open(JsonValue::Kind kind) {
    MEGALITH_CHECK(open_.size() < kMaxDepth,
                   "[task graph] the JSON text nests deeper than {} levels; no task graph does", kMaxDepth);
    add(kind);
    open_.push_back({static_cast<uint32_t>(entries_.size() - 1), open_keys_.size()});
    return true;
  }
  bool close() {
    entries_[open_.back().entry].next = static_cast<uint32_t>(entries_.size());
    open_keys_.resize(open_.back().first_key);
    open_.pop_back();
    return true;
  }

  std::vector<JsonText::Entry>& entries_;
  std::string& texts_;
  std::vector<Open> open_;                         // the containers around
  std::vector<int64_t> open_keys_;                 // of the objects among them, by place
  std::unordered_map<std::string, int64_t> keys_;  // where each begins in texts_
};

JsonText::JsonText(std::string_view text) {
  // A task graph has a little more than this many characters a value. What is reserved and not used costs no memory.
  constexpr size_t kCharactersAValue = 5, kMaxAtOnce = size_t{1} << 26;
  entries_.reserve(std::min(text.size() / kCharactersAValue, kMaxAtOnce));
  JsonReader reader(*this);
  Json::sax_parse(text, &reader);
}

JsonValue::Kind JsonValue::kind() const { return static_cast<Kind>(text_->entries_[index_].kind); }
uint32_t JsonValue::size() const { return text_->entries_[index_].size; }
JsonValue JsonValue::next() const { return {*text_, text_->entries_[index_].next}; }

std::string_view JsonValue::string() const {
  const JsonText::Entry& entry = text_->entries_[index_];
  return std::string_view(text_->texts_).substr(static_cast<size_t>(entry.value), entry.size);
}

std::optional<int64_t> JsonValue::integer() const {
  return kind() == Kind::integer ? std::optional(text_->entries_[index_].value) : std::nullopt;
}

std::optional<double> JsonValue::number() const {
  if (const auto whole = integer()) return static_cast<double>(*whole);
  if (kind() != Kind::number) return {};
  double value = 0;
  const std::string_view text = string();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

namespace {
constexpr size_t kMaxShown = 60;
std::string shortened(std::string_view text) {
  return text.size() > kMaxShown ? std::string(text.substr(0, kMaxShown)) + "..." : std::string(text);
}
}  // namespace

std::string json_summary(std::string_view text) { return shortened(json_quote(text.substr(0, kMaxShown))); }

std::string JsonValue::summary() const {
  switch (kind()) {
    case Kind::null: return "null";
    case Kind::no: return "false";
    case Kind::yes: return "true";
    case Kind::integer: return std::to_string(text_->entries_[index_].value);
    case Kind::number: return shortened(string());
    case Kind::string: return json_summary(string());
    case Kind::array: return fmt::format("an array of {}", size());
    case Kind::object: return fmt::format("an object of {}", size());
  }
  return "?";
}

}  // namespace megalith::task
