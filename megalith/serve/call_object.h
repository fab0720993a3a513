// A call of a tool as most models write it, a JSON object that comes byte by byte: {"name": "weather", "arguments": {...}}.
// The arguments may also be called "parameters", stand in front of the name, or be a string with the JSON in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/serve/answer_piece.h"
#include "megalith/serve/json_scanner.h"

namespace megalith::serve {

/// For objects that no marker tells from an answer in JSON.
struct CallObjectRules {
  const std::vector<std::string>* names = nullptr;  // that alone are calls; null: all
  bool is_exact = false;                            // has arguments, and no members of its own invention
};

class CallObject {
 public:
  explicit CallObject(CallObjectRules rules = {}) : rules_(rules) {}

  enum class Step { more, done, broken };
  /// The first byte is the "{". Pieces come from when it is certain that this is a call; then `has_begun`. A byte that
  /// breaks it is not taken in.
  Step push(char byte, AnswerPieces& out);
  bool has_begun() const { return has_begun_; }
  /// Its name and its arguments are complete.
  bool lacks_only_brace() const { return has_begun_ && at_ == At::separator; }

 private:
  enum class At : uint8_t { open, first_key, key_begin, key, colon, value_begin, value, separator };
  enum class Member : uint8_t { name, arguments, other };

  Step key_end();
  Step begin_value(char byte, AnswerPieces& out);
  Step in_value(char byte, AnswerPieces& out);
  Step value_end(AnswerPieces& out);
  Step object_end(AnswerPieces& out);
  /// Once there are a name and arguments.
  void begin_call(AnswerPieces& out);
  void pass_arguments(AnswerPieces& out);

  CallObjectRules rules_;
  At at_ = At::open;
  Member member_ = Member::other;
  JsonScanner scanner_ = {};
  std::string text_ = {};       // of the key or value, as JSON
  std::string name_ = {};       // of the tool; "": not known yet
  std::string arguments_ = {};  // that are not passed on yet
  bool has_arguments_ = false, is_streamed_ = false, has_begun_ = false;
};

/// Whether a tool can be called that.
bool is_tool_name(std::string_view name);

}  // namespace megalith::serve
