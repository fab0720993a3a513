#include "tools/command_line.h"

// Finds the subcommand, parses its options, and says what went wrong in one line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>

#include "megalith/base/error.h"
#include "megalith/base/limits.h"
#include "megalith/base/log.h"
#include "megalith/base/log_file.h"
#include "megalith/base/message.h"
#include "megalith/model/near_names.h"
#include "tools/command.h"

namespace megalith::tools {

namespace {

// `message` is fit to be shown.
int fail(int code, const std::string& message) {
  const std::string line = fmt::format("megalith: error: {}\n", message);
  std::fputs(line.c_str(), stderr);
  log_file_line(line);
  return code;
}

int fail_usage(const std::string& message, const std::string& command) {
  fail(kExitUsage, message_text(message));
  std::fputs(fmt::format("try: megalith {}{}--help\n", command, command.empty() ? "" : " ").c_str(), stderr);
  return kExitUsage;
}

// llama.cpp's "-np" and "-md" are no options that a POSIX parser knows; "-n p" makes no sense, and "-m d" has a space.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (word == "--") break;
    if (word == "-np") word = "--max-batch";
    if (word == "-md") word = "--draft-model";
  }
  return words;
}

struct Verbosity {
  int verbose = 0;
  bool quiet = false;
  std::string level, file;

  void declare(Arguments& arguments) {
    arguments.group("Messages on stderr");
    arguments.count("-v,--verbose", verbose, "say more; -vv says everything");
    arguments.flag("-q,--quiet", quiet, "only errors");
    arguments.choice("--log-level", level, {"quiet", "warn", "info", "debug"}, "the same by name (MEGALITH_LOG)");
    arguments.text("--log-file", file, "FILE", "appends a copy of what is said on stderr");
  }
  void apply() const {
    if ((verbose > 0) + quiet + !level.empty() > 1) throw UsageError{"--verbose, --quiet or --log-level, not several"};
    constexpr const char* kNames[] = {"quiet", "warn", "info", "debug"};
    for (int i = 0; i < 4; ++i)
      if (level == kNames[i]) log_level_set(static_cast<LogLevel>(i));
    if (verbose > 0) log_level_set(verbose > 1 ? LogLevel::debug : LogLevel::info);
    if (quiet) log_level_set(LogLevel::quiet);
    if (!file.empty()) log_file_open(file);
  }
};

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// CLI11 says which words were left over; a mistyped option is the usual reason.
std::string explain_extras(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining();
  const std::string word = words.empty() ? "" : words.front();
  if (word.starts_with("-")) return fmt::format("unknown option {}{}", word, near_names(word, option_names(app)));
  return fmt::format("\"{}\" is one argument too many", word);
}

// CLI11 leaves two empty lines between groups.
std::string help_of(const CLI::App& app) {
  std::string text = app.help();
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

// What "bench" is the first word of, for its help.
std::string more_commands(const std::string& name) {
  std::string text;
  for (const Command& command : all_commands())
    if (std::string_view(command.name).starts_with(name + " "))
      text += fmt::format("{}  megalith {:<13} {}\n", text.empty() ? "\n\nAlso:\n" : "", command.name, command.summary);
  return text;
}

int run_one(const Command& command, std::vector<std::string> words) {
  CLI::App app(fmt::format("megalith {}: {}\n", command.name, command.summary),
               fmt::format("megalith {}", command.name));
  app.footer(fmt::format("Example:\n  {}{}", command.example, more_commands(command.name)));
  app.get_formatter()->column_width(42);
  app.set_help_flag("-h,--help", "this text");
  Arguments arguments(app);
  const Action action = command.declare(arguments);
  Verbosity verbosity;
  verbosity.declare(arguments);
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(std::move(words));
    verbosity.apply();
    return action();
  } catch (const CLI::CallForHelp&) {
    std::fputs(help_of(app).c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ExtrasError&) {
    return fail_usage(explain_extras(app), command.name);
  } catch (const CLI::ParseError& error) {
    return fail_usage(error.what(), command.name);
  } catch (const UsageError& error) { return fail_usage(error.message, command.name); }
}

std::string overview() {
  std::string text =
      "Megalith compiles a model into one persistent kernel and runs it.\n\nUsage: megalith COMMAND [OPTIONS]\n\n";
  for (const Command& command : all_commands()) text += fmt::format("  {:<13} {}\n", command.name, command.summary);
  return text +
         "\nmegalith COMMAND --help tells a command's options. Results go to stdout, everything else to stderr; the "
         "exit\n"
         "code is 0, or 1 for an error, 2 for a wrong command line, 130 after Ctrl-C.\n\nExample:\n  " +
         run_command().example + "\n";
}

int dispatch(std::vector<std::string> words) {
  if (words.empty()) {
    std::fputs(overview().c_str(), stderr);
    return kExitUsage;
  }
  std::string verb = words.front();
  if (verb == "--version" || verb == "-V") verb = "version";
  if (verb == "--help" || verb == "-h" || verb == "help") {
    // `megalith help run` is `megalith run --help`.
    if (words.size() == 1) return std::fputs(overview().c_str(), stdout), kExitOk;
    words.erase(words.begin());
    verb = words[0];
    words.push_back("--help");
  }
  words.erase(words.begin());
  std::vector<std::string> names;
  for (const Command& command : all_commands()) {  // two words before one: "bench latency" is not the model "latency"
    if (words.empty() || verb + " " + words[0] != command.name) continue;
    words.erase(words.begin());
    return run_one(command, std::move(words));
  }
  for (const Command& command : all_commands()) {
    if (verb == command.name) return run_one(command, std::move(words));
    names.push_back(command.name);
  }
  return fail_usage(fmt::format("there is no command \"{}\"{}", verb, near_names(verb, names)), "");
}

}  // namespace

int command_line(int argc, char** argv) {
  // A reader that goes away (`| head`) ends us without a word, also where our parent had the signal ignored.
  std::signal(SIGPIPE, SIG_DFL);
  // A file that would be larger than the process may write is an error to be told, not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = dispatch(words_of(argc, argv));
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    return fail(kExitError, system_error("cannot write the result to stdout").what());
  } catch (const InternalError& error) {
    return fail(kExitError,
                fmt::format("{}\nmegalith: this is a fault in Megalith, not in what you asked for", error.what()));
  } catch (const Error& error) { return fail(kExitError, error.what()); } catch (const std::bad_alloc&) {
    return fail(kExitError, fmt::format("out of memory ({})", limit_text(ENOMEM)));
  } catch (const std::system_error& error) {
    return fail(kExitError, system_error(error).what());
  } catch (const std::exception& error) {
    return fail(kExitError, fmt::format("{}\nmegalith: this is a fault in Megalith", message_text(error.what())));
  }
}

}  // namespace megalith::tools
