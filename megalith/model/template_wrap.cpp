#include "megalith/model/template_wrap.h"

#include <algorithm>
#include <deque>

#include "megalith/base/error.h"
#include "megalith/model/encode_budget.h"
#include "megalith/model/regex.h"
#include "megalith/model/template_text.h"

namespace megalith {

namespace {

// White space, dashes between words, words up to a hyphen or a dash or their end.
constexpr const char* kPieces =
    R"([\t\n\x{0B}\x{0C}\r ]+|(?<=[\p{L}\p{N}_!"'&.,?])-{2,}(?=[\p{L}\p{N}_])|)"
    R"([^\t\n\x{0B}\x{0C}\r ]+?(?:-(?:(?<=[\p{L}\p{Nl}\p{No}_]{2}-)|(?<=[\p{L}\p{Nl}\p{No}_]-[\p{L}\p{Nl}\p{No}_]-)))"
    R"((?=[\p{L}\p{Nl}\p{No}_]-?[\p{L}\p{Nl}\p{No}_])|(?=[\t\n\x{0B}\x{0C}\r ]|\z)|)"
    R"((?<=[\p{L}\p{N}_!"'&.,?])(?=-{2,}[\p{L}\p{N}_])))";

constexpr std::string_view kSpace = "\t\n\x0B\x0C\r ";

struct Piece {
  TextRange range;
  int64_t length;  // in characters
};

std::deque<Piece> pieces(std::string_view text, bool break_on_hyphens) {
  std::deque<Piece> all;
  auto add = [&](size_t begin, size_t end) {
    if (begin < end) all.push_back({{begin, end}, template_length(text.substr(begin, end - begin))});
  };
  size_t done = 0;
  if (break_on_hyphens) {
    static const Regex kRegex(kPieces);
    EncodeBudget budget(text.size());
    kRegex.each_match(text, budget, [&](size_t begin, size_t end) {
      add(done, begin);
      add(begin, end);
      done = end;
    });
  } else {
    while (done < text.size()) {
      const bool is_space = kSpace.find(text[done]) != kSpace.npos;
      const size_t found = is_space ? text.find_first_not_of(kSpace, done) : text.find_first_of(kSpace, done);
      const size_t end = std::min(found, text.size());
      add(done, end);
      done = end;
    }
  }
  add(done, text.size());
  return all;
}

}  // namespace

std::vector<MarkedText> template_wrap(const MarkedView& paragraph, const TemplateWrap& how) {
  const std::string_view text = paragraph.text;
  auto is_blank = [&](const Piece& piece) {
    const std::string_view all = text.substr(piece.range.begin, piece.range.end - piece.range.begin);
    const TextRange bare = template_strip(all, std::nullopt, true, true);
    return bare.begin == bare.end;
  };
  std::deque<Piece> rest = pieces(text, how.break_on_hyphens);
  std::vector<MarkedText> lines;
  while (!rest.empty()) {
    if (!lines.empty() && is_blank(rest.front())) rest.pop_front();
    std::vector<Piece> line;
    int64_t length = 0;
    while (!rest.empty() && length + rest.front().length <= how.width) {
      length += rest.front().length;
      line.push_back(rest.front());
      rest.pop_front();
    }
    if (!rest.empty() && rest.front().length > how.width) {
      Piece& word = rest.front();
      const std::string_view all = text.substr(word.range.begin, word.range.end - word.range.begin);
      if (how.break_long_words) {
        // Behind the last hyphen that fits, if there is more than hyphens in front of it.
        int64_t fits = how.width - length;
        size_t bytes = template_place(all, fits);
        if (how.break_on_hyphens && word.length > fits) {
          const size_t hyphen = all.substr(0, bytes).rfind('-');
          if (hyphen != all.npos && hyphen > 0 && all.substr(0, hyphen).find_first_not_of('-') != all.npos) {
            bytes = hyphen + 1;
            fits = template_length(all.substr(0, bytes));
          }
        }
        line.push_back({{word.range.begin, word.range.begin + bytes}, fits});
        word.range.begin += bytes;
        word.length -= fits;
      } else if (line.empty()) {
        line.push_back(word);
        rest.pop_front();
      }
    }
    if (!line.empty() && is_blank(line.back())) line.pop_back();
    if (line.empty()) continue;
    lines.push_back(template_part(paragraph, line.front().range.begin, line.back().range.end));
  }
  return lines;
}

}  // namespace megalith
