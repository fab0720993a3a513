// Text that carries, byte by byte, whether a stranger wrote it. A prompt is part template and part what users typed;
// the two are tokenized as one text, so that words join across the border as the model was trained, but what users
// typed must not become a special token. The marks go with the text through the normalizer to where tokens are looked
// for.
#pragma once

#include <string>
#include <string_view>

namespace megalith {

/// A stretch of a prompt, from the template or from what was put into it.
struct TextSegment {
  std::string text;
  bool is_user_content = false;  // then no part of it becomes a special token
};

struct MarkedView {
  std::string_view text;
  std::string_view marks = {};  // a byte for each of text, 1 where a stranger wrote it; or empty: nowhere

  MarkedView part(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), marks.empty() ? marks : marks.substr(begin, end - begin)};
  }
  /// Whether a stranger wrote any of [begin, end).
  bool is_marked(size_t begin, size_t end) const {
    return !marks.empty() && marks.substr(begin, end - begin).find('\1') != std::string_view::npos;
  }
};

struct MarkedText {
  std::string text;
  std::string marks = {};

  MarkedView view() const { return {text, marks}; }
  /// Appends, with its marks; either side may be without any.
  void append(const MarkedView& from) {
    if (!from.marks.empty() || !marks.empty()) {
      marks.resize(text.size(), '\0');
      marks += from.marks;
      marks.resize(text.size() + from.text.size(), '\0');
    }
    text += from.text;
  }
  /// Appends a part of `from`, with its marks.
  void append(const MarkedView& from, size_t begin, size_t end) {
    text += from.text.substr(begin, end - begin);
    if (!from.marks.empty()) marks += from.marks.substr(begin, end - begin);
  }
  /// Appends what stands for [begin, end) of `from`: a stranger's if any of that was.
  void append_for(const MarkedView& from, size_t begin, size_t end, std::string_view instead) {
    text += instead;
    if (!from.marks.empty()) marks.append(instead.size(), from.is_marked(begin, end) ? '\1' : '\0');
  }
};

}  // namespace megalith
