#include "megalith/serve/answer_parser.h"

#include <cstdio>
#include <cstdlib>

#include "fuzz.h"
#include "megalith/model/json.h"

namespace {

using namespace megalith;
using namespace megalith::serve;
using Kind = AnswerPiece::Kind;

const std::vector<CallableTool> kFuzzedTools = {{"f", {{"s", "string"}, {"i", "integer"}, {"o", ""}}}, {"g", {}}};

AnswerPieces pieces_of(AnswerParser parser, std::string_view text, size_t piece) {
  AnswerPieces all;
  const auto add = [&](const AnswerPieces& pieces) {
    for (const AnswerPiece& one : pieces.all) all.add(one.kind, one.text);
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) add(parser.push(text.substr(0, piece)));
  add(parser.finish());
  return all;
}

// Arguments and ends stand behind a call, and complete arguments are a JSON object.
bool is_sound(const AnswerPieces& pieces) {
  bool is_in_call = false;
  std::string arguments;
  for (const AnswerPiece& one : pieces.all) {
    const bool is_of_call = one.kind == Kind::arguments || one.kind == Kind::call_end;
    if (is_of_call && !is_in_call) return false;
    if (one.kind == Kind::arguments) arguments += one.text;
    if (one.kind == Kind::call_end) {
      try {
        if (!JsonFile::parse(arguments, "arguments").root().is_object()) return false;
      } catch (const UserError& error) {
        // A model writes whole characters; keys that stand twice, halves of pairs and 1e999 are its own affair.
        const std::string_view what = error.what();
        if (what.find("UTF-8") == std::string_view::npos && what.find("stands twice") == std::string_view::npos &&
            what.find("surrogate") == std::string_view::npos && what.find("overflow") == std::string_view::npos)
          return std::fprintf(stderr, "%s\n%s\n", arguments.c_str(), error.what()), false;
      }
    }
    if (!is_of_call) {
      is_in_call = one.kind == Kind::call;
      arguments.clear();
    } else if (one.kind == Kind::call_end) {
      is_in_call = false;
    }
  }
  return true;
}

}  // namespace

// However a text is cut while it comes, the same pieces are found.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t kind = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, std::min<size_t>(size - 1, 8192));
  const auto parser = [&] {
    AnswerSyntax syntax{.calls = static_cast<CallFormat>(kind % 5)};
    if (kind & 16) syntax.think_begin = "<think>", syntax.think_end = "</think>";
    return AnswerParser(syntax, make_call_parser(syntax.calls, kFuzzedTools), kind & 32);
  };
  const AnswerPieces whole = pieces_of(parser(), text, text.size() + 1);
  if (!is_sound(whole)) std::abort();
  for (const size_t piece : {1, 7})
    if (pieces_of(parser(), text, piece).all != whole.all) {
      std::fprintf(stderr, "pieces of %zu give something else\n", piece);
      std::abort();
    }
  return 0;
}
