#include <cstdio>
#include <cstdlib>

#include "fuzz.h"
#include "megalith/serve/http_answer_reader.h"
#include "megalith/serve/sse_reader.h"
#include "megalith/serve/stream_chunk.h"

namespace {

using namespace megalith;

// All events of an answer, as text, when at most `piece` bytes arrive at a time and the connection ends behind the last.
std::string events_of(std::string_view bytes, size_t piece) {
  std::string seen, held;
  serve::HttpAnswerReader http(512);
  serve::SseReader events(1024);
  const auto on_event = [&](std::string_view data) {
    seen += std::string(data) + "\n";
    try {
      const serve::StreamChunk chunk = serve::read_stream_chunk(data);
      seen += std::to_string(chunk.has_content) + std::to_string(chunk.completion_tokens.value_or(-1));
    } catch (const UserError&) {}
  };
  while (!http.is_complete() && !http.complaint()) {
    const bool knew_head = http.has_head();
    const size_t taken = http.take(held);
    held.erase(0, taken);
    events.take(http.take_body(), on_event);
    if (taken > 0 || knew_head != http.has_head()) continue;
    if (bytes.empty()) break;
    held += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  http.take_end();
  events.take(http.take_body(), on_event);
  return seen;
}

}  // namespace

// However the bytes arrive, they are the same events.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), std::min<size_t>(size, 8192));
  const std::string whole = events_of(bytes, bytes.size() + 1);
  for (const size_t piece : {1, 7}) {
    const std::string pieces = events_of(bytes, piece);
    if (pieces == whole) continue;
    std::fprintf(stderr, "in one piece:\n%s\nin pieces of %zu:\n%s\n", whole.c_str(), piece, pieces.c_str());
    std::abort();
  }
  return 0;
}
