#include "megalith/serve/http_reader.h"

#include <cstdio>
#include <cstdlib>

#include "fuzz.h"

namespace {

using namespace megalith::serve;

// All requests of a connection, as text, when at most `piece` bytes arrive at a time. Of one whose end is missing it does not
// matter whether something is wrong with it already.
std::string requests_of(std::string_view bytes, size_t piece) {
  std::string seen;
  HttpReader reader(512, 2048);
  std::string held;
  while (true) {
    const size_t taken = reader.take(held);
    held.erase(0, taken);
    if (reader.complaint()) return seen;
    if (reader.is_complete()) {
      const std::optional<HttpRequest> request = reader.request();
      if (!request) return seen + "no path\n";
      seen += request->method + " " + request->path + "?" + request->query + "\n" + request->body + "\n";
      for (const auto& [name, value] : request->headers) seen += name + ":" + value + "\n";
      reader = HttpReader(512, 2048);
    } else if (taken == 0 || held.empty()) {
      if (bytes.empty()) return seen;
      held += bytes.substr(0, piece);
      bytes.remove_prefix(std::min(piece, bytes.size()));
    }
  }
}

}  // namespace

// However the bytes arrive, they are the same requests: else two readers of one connection could see different ones.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), std::min<size_t>(size, 8192));
  const std::string whole = requests_of(bytes, bytes.size() + 1);
  for (const size_t piece : {1, 7}) {
    const std::string pieces = requests_of(bytes, piece);
    if (pieces == whole) continue;
    std::fprintf(stderr, "in one piece:\n%s\nin pieces of %zu:\n%s\n", whole.c_str(), piece, pieces.c_str());
    std::abort();
  }
  return 0;
}
