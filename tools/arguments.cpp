#include "tools/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

namespace megalith::tools {

namespace {

// Caught by naming(), which knows the option.
struct Refusal {
  std::string message;
};
[[noreturn]] void refuse(std::string message) { throw Refusal{std::move(message)}; }

// "-n,--max-new-tokens,--predict" is called --max-new-tokens.
std::string label_of(const std::string& names) {
  const size_t begin = names.find("--");
  return begin == std::string::npos ? names : names.substr(begin, names.find(',', begin) - begin);
}

// `take`, with the option's name put before what it refuses.
std::function<void(const std::string&)> naming(const std::string& names, std::function<void(const std::string&)> take) {
  return [label = label_of(names), take = std::move(take)](const std::string& text) {
    try {
      take(text);
    } catch (const Refusal& refusal) { throw CLI::ValidationError(label, refusal.message); }
  };
}

int64_t read_integer(const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  auto [rest, code] = std::from_chars(text.data(), end, value);
  int64_t unit = 1;
  if (code == std::errc() && end - rest == 1) {
    constexpr std::pair<char, int64_t> kUnits[] = {{'k', 1000}, {'K', 1024}, {'m', 1000 * 1000}, {'M', 1024 * 1024}};
    for (const auto& [suffix, factor] : kUnits)
      if (*rest == suffix) unit = factor, ++rest;
  }
  const bool whole = code == std::errc() && rest == end && !__builtin_mul_overflow(value, unit, &value);
  if (!whole || value < least || value > most) {
    const std::string limits = most == std::numeric_limits<int64_t>::max() ? fmt::format("from {}", least)
                                                                           : fmt::format("{} to {}", least, most);
    refuse(fmt::format("\"{}\" is not what it takes, want a whole number, {}", text, limits));
  }
  return value;
}

double read_number(const std::string& text, double least, double most) {
  double value = 0;
  const char* const end = text.data() + text.size();
  auto [rest, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || rest != end || !std::isfinite(value) || value < least || value > most)
    refuse(fmt::format("\"{}\" is not what it takes, want a number, {} to {}", text, least, most));
  return value;
}

std::string read_word(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (word == text) return text;
  refuse(fmt::format("\"{}\" is none of {}", text, fmt::join(words, ", ")));
}

CLI::Option* add(CLI::App& app, const std::string& group, const std::string& names, const std::string& what,
                 const std::string& help, std::function<void(const std::string&)> take) {
  return app.add_option_function<std::string>(names, naming(names, std::move(take)), help)
      ->group(group)
      ->type_name(what)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// "a,b" as "a" and "b".
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string empty_text(const std::string& what) { return fmt::format("\"\" is empty, want {}", what); }

std::vector<std::string> words_of(std::initializer_list<const char*> words) { return {words.begin(), words.end()}; }

}  // namespace

void Arguments::positional(const std::string& name, std::string& value, const std::string& help, bool required) {
  app_.add_option_function<std::string>(name,
                                        naming(name,
                                               [&value, name, required](const std::string& text) {
                                                 if (text.empty() && required) refuse(empty_text(name));
                                                 value = text;
                                               }),
                                        help)
      ->type_name("")
      ->required(required);
}

void Arguments::positionals(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  app_.add_option_function<std::vector<std::string>>(
          name,
          [&values, name](const std::vector<std::string>& texts) {
            for (const std::string& text : texts)
              if (text.empty()) refuse(empty_text(name));
            values = texts;
          },
          help)
      ->type_name("")
      ->required();
}

void Arguments::positional(const std::string& name, std::string& value, std::initializer_list<const char*> words,
                           const std::string& help, bool required) {
  app_.add_option_function<std::string>(
          name,
          naming(name, [&value, list = words_of(words)](const std::string& text) { value = read_word(text, list); }),
          help)
      ->type_name("")
      ->required(required);
}

void Arguments::text(const std::string& names, std::string& value, const std::string& what, const std::string& help,
                     bool may_be_empty) {
  add(app_, group_, names, what, help, [&value, what, may_be_empty](const std::string& text) {
    if (text.empty() && !may_be_empty) refuse(empty_text(what));
    value = text;
  });
}

void Arguments::texts(const std::string& names, std::vector<std::string>& values, const std::string& what,
                      const std::string& help, bool may_be_empty) {
  // One word a time: `-p a MODEL` must not take MODEL for a second prompt.
  app_.add_option_function<std::vector<std::string>>(
          names,
          [&values, what, may_be_empty, label = label_of(names)](const std::vector<std::string>& texts) {
            for (const std::string& text : texts)
              if (text.empty() && !may_be_empty) throw CLI::ValidationError(label, empty_text(what));
            values = texts;
          },
          help)
      ->group(group_)
      ->type_name(what)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Arguments::words(const std::string& names, std::vector<std::string>& values, const std::string& what,
                      const std::string& help) {
  app_.add_option_function<std::vector<std::string>>(
          names,
          [&values, what, label = label_of(names)](const std::vector<std::string>& texts) {
            values.clear();
            for (const std::string& text : texts)
              for (std::string& part : split_at_commas(text)) {
                if (part.empty()) throw CLI::ValidationError(label, empty_text(what));
                values.push_back(std::move(part));
              }
          },
          help)
      ->group(group_)
      ->type_name(what)
      ->expected(1, -1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Arguments::choice(const std::string& names, std::string& value, const std::vector<std::string>& words,
                       const std::string& help) {
  add(app_, group_, names, fmt::format("{}", fmt::join(words, "|")), help,
      [&value, list = words](const std::string& text) { value = read_word(text, list); });
}

void Arguments::flag(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help)->group(group_);
}

void Arguments::count(const std::string& names, int& value, const std::string& help) {
  app_.add_flag_function(
          names, [&value](int64_t times) { value = static_cast<int>(times); }, help)
      ->group(group_);
}

void Arguments::integer(const std::string& names, int64_t& value, const std::string& help, int64_t least, int64_t most,
                        std::optional<int64_t> minus_one) {
  add(app_, group_, names, "N", help, [&value, least, most, minus_one](const std::string& text) {
    value = text == "-1" && minus_one ? *minus_one : read_integer(text, least, most);
  });
}

void Arguments::integer(const std::string& names, std::optional<int64_t>& value, const std::string& help, int64_t least,
                        int64_t most, std::optional<int64_t> minus_one) {
  add(app_, group_, names, "N", help, [&value, least, most, minus_one](const std::string& text) {
    value = text == "-1" && minus_one ? *minus_one : read_integer(text, least, most);
  });
}

void Arguments::integers(const std::string& names, std::vector<int64_t>& values, const std::string& help, int64_t least,
                         int64_t most) {
  add(app_, group_, names, "N,N,...", help, [&values, least, most](const std::string& text) {
    values.clear();
    for (const std::string& part : split_at_commas(text)) values.push_back(read_integer(part, least, most));
  });
}

void Arguments::number(const std::string& names, std::optional<double>& value, const std::string& help, double least,
                       double most) {
  add(app_, group_, names, "X", help,
      [&value, least, most](const std::string& text) { value = read_number(text, least, most); });
}

void Arguments::numbers(const std::string& names, std::vector<double>& values, const std::string& help, double least,
                        double most) {
  add(app_, group_, names, "X,X,...", help, [&values, least, most](const std::string& text) {
    values.clear();
    for (const std::string& part : split_at_commas(text)) values.push_back(read_number(part, least, most));
  });
}

void Arguments::when_read(std::function<void()> then) { app_.parse_complete_callback(std::move(then)); }

}  // namespace megalith::tools
