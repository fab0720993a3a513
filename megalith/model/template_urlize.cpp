// Jinja's urlize: links around the URLs and mail addresses in a text.
#include <algorithm>

#include "megalith/model/encode_budget.h"
#include "megalith/model/regex.h"
#include "megalith/model/template_markup.h"
#include "megalith/model/template_text.h"
#include "megalith/model/unicode_property.h"

namespace megalith {

namespace {

constexpr const char* kUrl =
    R"((?i)^((https?://|www\.)(([\p{L}\p{N}_%-]+\.)+)?([a-z]{2,63}|xn--[\p{L}\p{N}_%]{2,59})|([\p{L}\p{N}_%-]{2,63}\.)+)"
    R"((com|net|int|edu|gov|org|info|mil)|(https?://)((([\p{Nd}]{1,3})(\.[\p{Nd}]{1,3}){3})|)"
    R"((\[([\p{Nd}a-f]{0,4}:){2}([\p{Nd}a-f]{0,4}:?){1,6}\])))(?::[\p{Nd}]{1,5})?(?:[/?#]\S*)?$)";
constexpr const char* kMail = R"(^\S+@[\p{L}\p{N}_][\p{L}\p{N}_.-]*\.[\p{L}\p{N}_]+$)";

bool matches(const Regex& regex, std::string_view word) {
  bool found = false;
  EncodeBudget budget(word.size());
  regex.each_match(word, budget, [&](size_t begin, size_t) { found |= begin == 0; });
  return found;
}

// One word, with its place in the text that it is made from.
class Word {
 public:
  Word(const MarkedView& text, const TemplateLinks& links) : text_(text), links_(links), end_(text.text.size()) {}

  void append_to(TemplateTextBuilder& out) {
    take_head();
    take_tail();
    balance();
    out.append(text_.part(0, begin_));
    link(out);
    out.append(text_.part(end_, text_.text.size()));
  }

 private:
  std::string_view middle() const { return text_.text.substr(begin_, end_ - begin_); }

  void take_head() {
    for (;;) {
      const std::string_view rest = text_.text.substr(begin_);
      if (rest.starts_with("(") || rest.starts_with("<"))
        begin_ += 1;
      else if (rest.starts_with("&lt;"))
        begin_ += 4;
      else
        return;
    }
  }

  void take_tail() {
    while (end_ > begin_) {
      if (std::string_view(")>.,\n").find(middle().back()) != std::string_view::npos)
        end_ -= 1;
      else if (middle().ends_with("&gt;"))
        end_ -= 4;
      else
        return;
    }
  }

  // Closing brackets belong to the URL as long as it opens more of them.
  void balance() {
    for (const auto& [open, close] : {std::pair("(", ")"), {"<", ">"}, {"&lt;", "&gt;"}}) {
      const int64_t opened = template_count(middle(), open);
      if (opened <= template_count(middle(), close)) continue;
      const std::string_view tail = text_.text.substr(end_);
      for (int64_t i = std::min(opened, template_count(tail, close)); i > 0; --i)
        end_ = text_.text.find(close, end_) + std::string_view(close).size();
    }
  }

  void anchor(TemplateTextBuilder& out, std::string_view scheme, bool with_attributes, const MarkedView& shown) const {
    out.append("<a href=\"");
    out.append(scheme);
    out.append(text_.part(begin_, end_));
    out.append("\"");
    if (with_attributes) {
      for (const auto& [name, value] : {std::pair(" rel=\"", &links_.rel), {" target=\"", &links_.target}}) {
        if (value->text.empty()) continue;
        out.append(name);
        out.append(template_escape(value->view()).view());
        out.append("\"");
      }
    }
    out.append(">");
    out.append(shown);
    if (with_attributes && links_.trim_limit && shown.text.size() < end_ - begin_) out.append("...");
    out.append("</a>");
  }

  void link(TemplateTextBuilder& out) const {
    static const Regex kUrlRegex(kUrl), kMailRegex(kMail);
    const std::string_view word = middle();
    const MarkedView all = text_.part(begin_, end_);
    MarkedView trimmed = all;
    if (links_.trim_limit && template_length(word) > *links_.trim_limit) {
      // A limit below 0 counts from the end, as Python's slices do.
      const int64_t limit = *links_.trim_limit, length = template_length(word);
      trimmed = all.part(0, template_place(word, limit < 0 ? std::max<int64_t>(limit + length, 0) : limit));
    }
    if (matches(kUrlRegex, word)) {
      const bool has_scheme = word.starts_with("https://") || word.starts_with("http://");
      anchor(out, has_scheme ? "" : "https://", true, trimmed);
    } else if (word.starts_with("mailto:") && matches(kMailRegex, word.substr(7))) {
      anchor(out, "", false, all.part(7, word.size()));
    } else if (word.find('@') != word.npos && !word.starts_with("www.") && !word.starts_with("@") &&
               word.find(':') == word.npos && matches(kMailRegex, word)) {
      anchor(out, "mailto:", false, all);
    } else {
      const auto scheme = std::find_if(links_.extra_schemes.begin(), links_.extra_schemes.end(),
                                       [&](const auto& s) { return word != s.text && word.starts_with(s.text); });
      if (scheme == links_.extra_schemes.end()) return out.append(all);
      anchor(out, "", true, all);
    }
  }

  MarkedView text_;
  const TemplateLinks& links_;
  size_t begin_ = 0, end_;
};

}  // namespace

MarkedText template_urlize(const MarkedView& escaped, const TemplateLinks& links) {
  TemplateTextBuilder out;
  size_t done = 0;
  for (const TextRange& word : template_split(escaped.text, std::nullopt, -1, false)) {
    out.append(escaped.part(done, word.begin));
    Word(escaped.part(word.begin, word.end), links).append_to(out);
    done = word.end;
  }
  out.append(escaped.part(done, escaped.text.size()));
  return out.take();
}

}  // namespace megalith
