// One JSON value that comes byte by byte, and is passed on at once as far as it is sound: what has been passed on is always
// the beginning of valid JSON. Models write line ends and tabs into strings as they are; these are escaped.
#pragma once

#include <cstdint>
#include <string>

namespace megalith::serve {

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

class JsonScanner {
 public:
  enum class Step {
    more,
    done,         // with this byte
    done_before,  // a number or a word, whose end the byte behind it tells
    broken,       // by this byte, which is not taken in
  };
  /// Appends to `out`. Nothing may follow an end.
  Step push(char byte, std::string& out);

 private:
  enum class At : uint8_t { value, first_element, first_key, key, colon, separator, string, escape, hex, word };

  Step begin_value(char byte, std::string& out);
  Step open(char byte, At next, std::string& out);
  Step close(char byte, std::string& out);
  Step value_end();
  Step in_string(char byte, std::string& out);
  Step in_escape(char byte, std::string& out);
  Step behind_value(char byte, std::string& out);

  At at_ = At::value;
  bool is_key_ = false;  // the string
  int hex_left_ = 0;
  std::string open_ = {};  // containers, "{[{"
  std::string word_ = {};  // passed on when it is whole
};

}  // namespace megalith::serve
