#include "megalith/jit/compiler.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "megalith/base/amx.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/first_lines.h"
#include "megalith/base/hash.h"
#include "megalith/base/options.h"
#include "megalith/base/threads.h"
#include "megalith/codegen/emit.h"
#include "megalith/jit/stage.h"
#include "megalith/machine/products.h"

namespace megalith::jit {

namespace {

constexpr const char* kCandidates[] = {"c++", "g++", "clang++"};
constexpr std::chrono::seconds kVersionTimeout{20};
constexpr size_t kLongestVersion = 200;

// Where compilers look for headers, libraries and their own parts besides. Some systems have them nowhere else, so a
// compiler gets these variables, and what they say is part of the key of what it makes.
constexpr const char* kSearched[] = {"CPATH",         "C_INCLUDE_PATH",  "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
                                     "COMPILER_PATH", "GCC_EXEC_PREFIX", "NIX_CFLAGS_COMPILE", "NIX_LDFLAGS",
                                     "SDKROOT"};

std::string search_variables() {
  std::string text;
  for (const char* name : kSearched)
    if (const char* value = std::getenv(name); value && *value) text += fmt::format("{}={}\n", name, value);
  return text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_program(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string search_path() {
  const char* path = std::getenv("PATH");  // the system's, not an option of ours
  return path && *path ? path : "/usr/local/bin:/usr/bin:/bin";
}

// Absolute path of the program; "" if there is none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (!is_program(name)) return "";
    char* absolute = ::realpath(name.c_str(), nullptr);
    std::string result = absolute && name[0] != '/' ? absolute : name;
    std::free(absolute);
    return result;
  }
  // A folder without a root, such as "." or none between two colons, is wherever we happen to be: a folder of others,
  // perhaps, who have put a "c++" there.
  std::istringstream folders(search_path());
  for (std::string folder; std::getline(folders, folder, ':');)
    if (folder.starts_with('/') && is_program(folder + "/" + name)) return folder + "/" + name;
  return "";
}

std::vector<std::string> find_command() {
  if (option_is_set("MEGALITH_CXX")) {
    const std::string value = option_value("MEGALITH_CXX");
    // A path with spaces in it is taken whole.
    std::vector<std::string> command = is_program(value) ? std::vector{value} : words_of(value);
    const std::string program = command.empty() ? "" : find_program(command[0]);
    MEGALITH_CHECK(
        !program.empty(),
        "[jit] MEGALITH_CXX is \"{}\", which is no program (looked in {}); set it to a C++ compiler, or unset it",
        value, search_path());
    command[0] = program;
    return command;
  }
  for (const char* name : kCandidates)
    if (const std::string program = find_program(name); !program.empty()) return {program};
  throw SystemError(fmt::format(
      "[jit] no C++ compiler found: looked for {} in {}. Kernels are compiled on the machine that runs them; "
      "install one (apt-get install g++, dnf install gcc-c++) or set MEGALITH_CXX=/path/to/compiler",
      fmt::join(kCandidates, ", "), search_path()));
}

std::string ask_version(const std::vector<std::string>& command) {
  std::vector<std::string> question = command;
  question.push_back("--version");
  const ProcessResult answer = process_run(question, "/", {.timeout = kVersionTimeout});
  if (!answer.ok())
    throw SystemError(Lines{fmt::format("[jit] {} {}; is it a C++ compiler? It said:\n{}", command_line(question),
                                        answer.ending(), first_lines(answer.output, 20))});
  return answer.output.substr(0, std::min(answer.output.find('\n'), kLongestVersion));
}

size_t usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<size_t>(CPU_COUNT(&set)) : 1;
}

}  // namespace

namespace {

// Remembered in the cache by path, time and size of the program.
std::string version_of(const std::vector<std::string>& command, const KernelCache& cache) {
  struct stat info = {};
  ::stat(command[0].c_str(), &info);
  // Follows symbolic links, so an upgrade of what c++ points to is seen.
  const std::string identity =
      fmt::format("{}\n{} {}.{:09}\n", command_line(command), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  const std::string key = hash_hex(command_line(command));
  if (const std::string known = cache.note(key); known.starts_with(identity)) return known.substr(identity.size());
  const std::string version = ask_version(command);
  cache.note_set(key, identity + version);
  return version;
}

}  // namespace

Compiler compiler_find(const KernelCache& cache) {
  Compiler compiler{find_command(), "", search_variables()};
  compiler.version = version_of(compiler.command, cache);
  return compiler;
}

std::vector<std::string> default_flags() {
  std::vector<std::string> flags = codegen::cpu_compile_flags();
  std::erase(flags, "-shared");  // of linking
  return flags;
}

namespace {

// What a kernel that is optimised little also does without, where its compiler is GCC: passes that take a third of its
// time at -O1 (the storyteller's kernel, GCC 12: 1.75 s of CPU, and 1.2 s without) and make a kernel a tenth faster.
// Vectors stay what they are, and sums have an order of their own (kernels/cpu/reduce.h): the bits are the same.
constexpr const char* kSkippedPasses[] = {"-fno-tree-ccp",          "-fno-tree-bit-ccp",
                                          "-fno-tree-copy-prop",    "-fno-tree-dse",
                                          "-fno-tree-sink",         "-fno-tree-fre",
                                          "-fno-tree-pta",          "-fno-tree-slsr",
                                          "-fno-tree-phiprop",      "-fno-ssa-phiopt",
                                          "-fno-tree-loop-im",      "-fno-ivopts",
                                          "-fno-tree-scev-cprop",   "-fno-move-loop-invariants",
                                          "-fno-forward-propagate", "-fno-cprop-registers",
                                          "-fno-if-conversion",     "-fno-dse",
                                          "-fno-reorder-blocks",    "-fno-ipa-pure-const",
                                          "-fno-ipa-modref"};

// It begins what it says of its version with its name and who built it: "g++-12 (Debian 12.2.0-14) 12.2.0"; others say
// "clang version 14", or whose they are. They refuse its flags.
bool is_gcc(const Compiler& compiler) {
  const std::vector<std::string> words = words_of(compiler.version);
  return words.size() > 1 && words[0].find("++") != std::string::npos && words[1].starts_with("(");
}

}  // namespace

std::vector<std::string> common_flags(const Compiler& compiler, codegen::Effort effort) {
  // The kernel runs where it is compiled; the CPU is part of the cache key.
  std::vector<std::string> flags = {"-march=native", "-Wall", "-Wextra"};
  if (effort == codegen::Effort::quick || !codegen::optimizes_fully()) {
    flags.push_back("-O1");  // the last one counts
    if (is_gcc(compiler)) flags.insert(flags.end(), std::begin(kSkippedPasses), std::end(kSkippedPasses));
  }
  const machine::Products products = machine::chosen_products();
  if (products == machine::Products::bf16) flags.push_back("-DMEGALITH_BF16_PRODUCTS");
  if (products == machine::Products::amx) {
    flags.push_back("-DMEGALITH_AMX_PRODUCTS");
#if defined(__x86_64__)
    // The processor may have tiles that the system does not give.
    if (!amx_is_usable()) flags.push_back("-mno-amx-tile");
#endif
  }
#ifdef MEGALITH_SANITIZE
  // Otherwise the sanitizer would see only the host's half of every race.
  flags.insert(flags.end(), {"-fsanitize=" MEGALITH_SANITIZE, "-fno-omit-frame-pointer", "-g1"});
#endif
  return flags;
}

CompileResult compile_units(const Compiler& compiler, const std::vector<std::string>& flags,
                            const std::string& directory, const std::vector<std::string>& units,
                            const std::string& output, Progress* progress, PatienceLimits limits) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> common = compiler.command;
  common.insert(common.end(), flags.begin(), flags.end());
  auto command_with = [&](std::initializer_list<std::string> more, const std::vector<std::string>& files) {
    std::vector<std::string> command = common;
    command.insert(command.end(), more);
    command.insert(command.end(), files.begin(), files.end());
    return command;
  };

  std::vector<std::vector<std::string>> compile;
  std::vector<std::string> objects;
  if (units.size() > 1)
    for (const std::string& unit : units) {
      objects.push_back(unit + ".o");
      compile.push_back(command_with({"-c", "-o", objects.back()}, {unit}));
    }
  const std::vector<std::string> link = command_with({"-shared", "-o", output}, units.size() > 1 ? objects : units);

  // What a compiler that is killed leaves goes with it.
  struct Temporary {
    std::string path;
    ~Temporary() {
      std::error_code code;
      std::filesystem::remove_all(path, code);
    }
  } const temporary{directory + "/tmp"};
  const ProcessFolders folders{.temporary = temporary.path, .unfinished = directory};
  std::string commands;
  for (const auto& command : compile) commands += command_line(command) + "\n";
  try {
    directory_create(temporary.path, 0700);
    file_write_atomic(directory + "/command.txt", commands + command_line(link) + "\n", 0600);
  } catch (const SystemError& error) { throw WorkspaceError(error.what()); }

  // Commands that are left after a failure are not started.
  std::vector<ProcessResult> results(compile.size());
  std::atomic<bool> failed = false;
  for_each_index(compile.size(), static_cast<int>(usable_cores()), [&](size_t i, const std::atomic<bool>& is_over) {
    if (failed) return;
    PatienceLimits mine = limits;
    mine.is_over = &is_over;
    results[i] = process_run(compile[i], directory, mine, folders);
    if (!results[i].ok()) failed = true;
    if (progress) progress->advance();
  });
  CompileResult result;
  for (size_t i = 0; i < compile.size(); ++i) {
    // A command that never ran has an exit code of -1 and no time.
    if (!results[i].ok() && results[i].ms > 0) return {results[i], compile[i], milliseconds_since(start)};
  }
  result.process = process_run(link, directory, limits, folders);
  result.command = link;
  for (const std::string& object : objects) ::unlink((directory + "/" + object).c_str());
  result.ms = milliseconds_since(start);
  return result;
}

}  // namespace megalith::jit
