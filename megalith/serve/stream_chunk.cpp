#include "megalith/serve/stream_chunk.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/json_reason.h"

namespace megalith::serve {

namespace {

// More tokens than any answer has; a count beyond it is none.
constexpr double kMaxTokens = 1e9;
constexpr size_t kMaxChunkDepth = 64;

// What of a chat's answer may come in parts. Servers have two names for reasoning.
constexpr std::string_view kParts[] = {"content", "reasoning_content", "reasoning", "refusal"};

// Values as they come, and no document: a client has a chunk for each token of all streams, and what one takes is a delay
// that the next one sees: 13 us of 280 bytes on a busy core, where a document takes 20. The parser keeps a stack of its own, so
// nesting is no danger to ours.
class ChunkSax {
 public:
  explicit ChunkSax(StreamChunk& chunk) : chunk_(chunk) {}

  std::string complaint;
  bool has_error = false;  // be its message of whatever form

  bool null() { return !(places_.empty() || is_at(Place::choices)) || scalar("null"); }
  bool boolean(bool) { return scalar("a boolean"); }
  bool number_integer(int64_t value) { return number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) { return number(value); }
  bool binary(std::vector<uint8_t>&) { return scalar("binary"); }
  bool key(std::string& name) {
    key_.swap(name);
    return true;
  }
  bool string(std::string& value) {
    if (is_at(Place::choice) && key_ == "text") {
      has_text_ = true;
      has_words_ |= !value.empty();
      return true;
    }
    if (is_at(Place::delta))
      for (const std::string_view part : kParts) chunk_.has_content |= key_ == part && !value.empty();
    if ((is_at(Place::root) && key_ == "error") || (is_at(Place::error) && key_ == "message")) chunk_.error = value;
    return scalar("a string");
  }
  bool start_object(size_t) { return start(true); }
  bool start_array(size_t) { return start(false); }
  bool end_object() {
    // A token may be a part of a character, and its text comes with a later one.
    if (is_at(Place::choice)) chunk_.has_content |= has_text_ && (has_words_ || !is_finished_);
    places_.pop_back();
    return true;
  }
  bool end_array() {
    places_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    complaint = json_reason(error.what());
    return false;
  }

 private:
  enum class Place { root, error, choices, choice, delta, calls, usage, prompt_details, other };

  bool is_at(Place place) const { return !places_.empty() && places_.back() == place; }
  bool complain(std::string_view name, std::string_view found, std::string_view wanted) {
    complaint = fmt::format("\"{}\" is or has {}, want {}", name, found, wanted);
    return false;
  }

  bool start(bool is_object) {
    if (places_.size() == kMaxChunkDepth) return complain(key_, "more than 64 levels", "fewer");
    const char* const found = is_object ? "an object" : "an array";
    Place place = Place::other;
    if (places_.empty()) {
      if (!is_object) return complain("data", found, "an object");
      place = Place::root;
    } else if (is_at(Place::root) && key_ == "choices") {
      if (is_object) return complain(key_, found, "an array");
      place = Place::choices;
    } else if (is_at(Place::root) && key_ == "usage") {
      if (!is_object) return complain(key_, found, "an object");
      place = Place::usage;
    } else if (is_at(Place::usage) && key_ == "prompt_tokens_details" && is_object) {
      place = Place::prompt_details;
    } else if (is_at(Place::root) && key_ == "error") {
      has_error = true;
      if (is_object) place = Place::error;
    } else if (is_at(Place::choices)) {
      if (!is_object) return complain("choices", found, "objects");
      place = Place::choice;
      chunk_.has_choice = true;
      has_text_ = has_words_ = is_finished_ = false;
    } else if (is_at(Place::choice) && key_ == "delta") {
      if (!is_object) return complain(key_, found, "an object");
      place = Place::delta;
    } else if (is_at(Place::choice) && key_ == "text") {
      return complain(key_, found, "a string");
    } else if (is_at(Place::delta) && key_ == "tool_calls" && !is_object) {
      place = Place::calls;
    } else if (is_at(Place::calls)) {
      chunk_.has_content = true;
    }
    places_.push_back(place);
    return true;
  }

  bool number(double value) {
    std::optional<int64_t>* count = nullptr;
    if (is_at(Place::usage) && key_ == "prompt_tokens") count = &chunk_.prompt_tokens;
    if (is_at(Place::usage) && key_ == "completion_tokens") count = &chunk_.completion_tokens;
    if (is_at(Place::prompt_details) && key_ == "cached_tokens") count = &chunk_.cached_tokens;
    if (!count) return scalar("a number");
    if (!(value >= 0 && value <= kMaxTokens) || value != std::floor(value))
      return complain(key_, fmt::format("{}", value), "a whole number, 0 to 1000000000");
    *count = static_cast<int64_t>(value);
    return true;
  }

  // What is no number of tokens and no text.
  bool scalar(std::string_view found) {
    if (places_.empty()) return complain("data", found, "an object");
    switch (places_.back()) {
      case Place::root:
        if (key_ == "choices") return complain(key_, found, "an array");
        if (key_ == "usage") return complain(key_, found, "an object");
        has_error |= key_ == "error";
        return true;
      case Place::choices: return complain("choices", found, "objects");
      case Place::choice:
        if (key_ == "text") return complain(key_, found, "a string");
        if (key_ == "delta") return complain(key_, found, "an object");
        if (key_ == "finish_reason") chunk_.is_finished = is_finished_ = true;
        return true;
      case Place::usage:
        if (key_ == "prompt_tokens" || key_ == "completion_tokens") return complain(key_, found, "a whole number");
        return true;
      default: return true;
    }
  }

  StreamChunk& chunk_;
  std::vector<Place> places_;
  std::string key_;
  bool has_text_ = false, has_words_ = false, is_finished_ = false;  // of the choice that is being read
};

}  // namespace

StreamChunk read_stream_chunk(std::string_view data) {
  StreamChunk chunk;
  if (data == "[DONE]") {
    chunk.is_end = true;
    return chunk;
  }
  ChunkSax sax(chunk);
  const bool is_whole = nlohmann::json::sax_parse(data.begin(), data.end(), &sax);
  MEGALITH_CHECK(is_whole, "the event: {}", sax.complaint);
  if (sax.has_error && !chunk.error) chunk.error = data;
  return chunk;
}

}  // namespace megalith::serve
