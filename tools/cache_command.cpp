// megalith cache: the compiled kernels on disk.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/jit/cache.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct CacheOptions {
  std::string verb;
  bool json = false;
};

void list(const jit::KernelCache& cache, bool json) {
  if (json) {
    std::vector<std::string> entries;
    for (const jit::CacheEntry& entry : cache.list())
      entries.push_back(fmt::format(R"({{"key": {}, "name": {}, "directory": {}, "bytes": {}, "used_at": {}}})",
                                    json_quote(entry.key), json_quote(entry.name), json_quote(entry.directory),
                                    entry.bytes, entry.used_at));
    return print(fmt::format("[{}]\n", fmt::join(entries, ",\n ")));
  }
  Table table({"key", "kernel", ">size", "last used"});
  for (const jit::CacheEntry& entry : cache.list())
    table.row({entry.key, entry.name, format_bytes(entry.bytes), format_time(entry.used_at)});
  print(table.text());
}

int run_cache(const CacheOptions& options) {
  const jit::KernelCache cache = jit::KernelCache::from_environment();
  const std::filesystem::path folder = cache.directory();
  MEGALITH_CHECK(!std::filesystem::exists(folder) || std::filesystem::is_directory(folder),
                 "the kernel cache {} is no directory (MEGALITH_CACHE_DIR)", folder.string());
  if (options.verb == "ls") list(cache, options.json);
  if (options.verb == "path")
    print(options.json ? fmt::format("{{\"directory\": {}}}\n", json_quote(cache.directory()))
                       : cache.directory() + "\n");
  if (options.verb == "size")
    print(options.json ? fmt::format("{{\"bytes\": {}, \"limit_bytes\": {}}}\n", cache.bytes(), cache.limit_bytes())
                       : fmt::format("{} of {}\n", format_bytes(cache.bytes()), format_bytes(cache.limit_bytes())));
  if (options.verb == "clear") {
    const int64_t freed = cache.clear();
    print(options.json ? fmt::format("{{\"freed_bytes\": {}}}\n", freed)
                       : fmt::format("freed {}\n", format_bytes(freed)));
  }
  return kExitOk;
}

Action declare_cache(Arguments& arguments) {
  auto options = std::make_shared<CacheOptions>();
  arguments.positional("ACTION", options->verb, {"ls", "path", "size", "clear"},
                       "ls: what is in it; path: where it is; size: how full it is; clear: delete all of it");
  arguments.flag("--json", options->json, "what is told as JSON");
  return [options] { return run_cache(*options); };
}

}  // namespace

Command cache_command() {
  return {"cache", "list or delete compiled kernels (MEGALITH_CACHE_DIR)", "megalith cache ls", declare_cache};
}

}  // namespace megalith::tools
