// The options of a subcommand: names, where the value goes, a sentence of help. A thin layer over CLI11, whose header
// costs five seconds in every source that includes it, so that a subcommand's file reads as the list of its options.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace megalith::tools {

/// `names` are separated by commas: "-n,--max-new-tokens,--predict". A value keeps what it was if its option is not
/// given. Whatever does not fit is a usage error that names the option.
class Arguments {
 public:
  explicit Arguments(CLI::App& app) : app_(app) {}

  /// The options that follow stand under this title in the help.
  void group(std::string title) { group_ = std::move(title); }

  void positional(const std::string& name, std::string& value, const std::string& help, bool required = true);
  /// One word out of `words`, by position.
  void positional(const std::string& name, std::string& value, std::initializer_list<const char*> words,
                  const std::string& help, bool required = true);
  /// One or several.
  void positionals(const std::string& name, std::vector<std::string>& values, const std::string& help);
  /// An empty text is refused, since it would be the same as none, unless `may_be_empty`.
  void text(const std::string& names, std::string& value, const std::string& what, const std::string& help,
            bool may_be_empty = false);
  /// May be given several times.
  void texts(const std::string& names, std::vector<std::string>& values, const std::string& what,
             const std::string& help, bool may_be_empty = false);
  /// Several words behind one option, each of which may be a list of them with commas: --goodput ttft:100 tpot:20.
  void words(const std::string& names, std::vector<std::string>& values, const std::string& what,
             const std::string& help);
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& words,
              const std::string& help);
  void flag(const std::string& names, bool& value, const std::string& help);
  /// How often it is given: -vv is 2.
  void count(const std::string& names, int& value, const std::string& help);

  /// A whole number; the suffixes k and K stand for 1000 and 1024, m and M for their squares. `minus_one` is what -1
  /// stands for, where other engines take it for "no limit" or "as you think best"; nothing: -1 is refused.
  void integer(const std::string& names, int64_t& value, const std::string& help, int64_t least = 0,
               int64_t most = std::numeric_limits<int64_t>::max(), std::optional<int64_t> minus_one = {});
  void integer(const std::string& names, std::optional<int64_t>& value, const std::string& help, int64_t least = 0,
               int64_t most = std::numeric_limits<int64_t>::max(), std::optional<int64_t> minus_one = {});
  /// Whole numbers separated by commas.
  void integers(const std::string& names, std::vector<int64_t>& values, const std::string& help, int64_t least = 0,
                int64_t most = std::numeric_limits<int64_t>::max());
  void number(const std::string& names, std::optional<double>& value, const std::string& help, double least,
              double most);
  /// Numbers separated by commas.
  void numbers(const std::string& names, std::vector<double>& values, const std::string& help, double least,
               double most);
  /// When all are read.
  void when_read(std::function<void()> then);

 private:
  CLI::App& app_;
  std::string group_ = "Options";
};

}  // namespace megalith::tools
