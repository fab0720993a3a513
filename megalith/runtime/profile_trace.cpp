#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "megalith/base/json_quote.h"
#include "megalith/runtime/profile_causes.h"
#include "megalith/runtime/profile_summary.h"

namespace megalith::runtime {

namespace {

class Writer {
 public:
  explicit Writer(u64 start_ns) : start_ns_(start_ns) {}

  void name(const char* what, size_t worker, const std::string& name) {
    add(fmt::format(R"({{"name":"{}","ph":"M","pid":0,"tid":{},"args":{{"name":{}}}}})", what, worker,
                    json_quote(name)));
  }
  void slice(const std::string& name, const std::string& category, size_t worker, u64 begin_ns, u64 end_ns,
             const ProfileRecord& record, std::optional<u32> stream_idle_ns = {}, const std::string& more = "") {
    add(fmt::format(
        R"({{"name":{},"cat":{},"ph":"X","ts":{:.3f},"dur":{:.3f},"pid":0,"tid":{},"args":{{"iteration":{},"task":{}{}{}}}}})",
        json_quote(name), json_quote(category), microseconds(begin_ns - start_ns_), microseconds(end_ns - begin_ns),
        worker, record.iteration, record.task,
        stream_idle_ns ? fmt::format(R"(,"stream_idle_us":{:.3f})", microseconds(*stream_idle_ns)) : "", more));
  }
  /// From a task's end to where one goes on that waited for its signal; which may be seen before the end is written
  /// down.
  void arrow(const std::string& name, const char* category, size_t from_worker, u64 from_ns, size_t to_worker,
             u64 to_ns) {
    constexpr const char* kEnd = R"({{"name":{},"cat":"{}","ph":"{}","id":{},"ts":{:.3f},"pid":0,"tid":{}{}}})";
    ++num_arrows_;
    arrows_ += ",\n" + fmt::format(kEnd, json_quote(name), category, "s", num_arrows_,
                                   microseconds(std::min(from_ns, to_ns) - 1 - start_ns_), from_worker, "");
    arrows_ += ",\n" + fmt::format(kEnd, json_quote(name), category, "f", num_arrows_, microseconds(to_ns - start_ns_),
                                   to_worker, R"(,"bp":"e")");
  }
  std::string finish() { return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + text_ + arrows_ + "\n]}\n"; }

 private:
  static double microseconds(u64 ns) { return static_cast<double>(static_cast<i64>(ns)) / 1000; }
  void add(const std::string& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event;
  }

  u64 start_ns_;
  size_t num_arrows_ = 0;
  std::string text_, arrows_;
};

// What a wait for flags was for, beside its name.
std::string flags_args(const ProfileCauses& causes, const task::TaskGraph& graph, const ProfileCause& last) {
  if (last.region < 0) return "";
  return fmt::format(R"(,"tensor":{}{})", json_quote(causes.range_of(last)),
                     last.task == kNone ? "" : fmt::format(R"(,"writer":{})", json_quote(graph.tasks[last.task].name)));
}

}  // namespace

std::string profile_trace(const Profile& profile, const task::TaskGraph& graph,
                          const std::vector<std::string>& operators) {
  u64 start_ns = ~u64{0};
  for (const std::vector<ProfileRecord>& records : profile.workers)
    if (!records.empty()) start_ns = std::min(start_ns, records[0].begin_ns);
  Writer writer(start_ns);
  const ProfileCauses causes(profile, graph);
  const auto idle = [&](u32 ns) { return profile.has_streams ? std::optional(ns) : std::nullopt; };
  writer.name("process_name", 0, "megalith " + graph.name);
  for (size_t w = 0; w < profile.workers.size(); ++w) {
    writer.name("thread_name", w, fmt::format("worker {}", w));
    const ProfileRecord* previous = nullptr;
    for (const ProfileRecord& record : profile.workers[w]) {
      const task::Task& task = graph.tasks.at(record.task);
      if (previous != nullptr && previous->iteration != record.iteration)
        writer.slice("gate", "gate", w, previous->end_ns, record.begin_ns, record);
      const std::vector<ProfileCause> waited = causes.all_of(record);
      if (!waited.empty())
        writer.slice("wait for " + causes.name_of(waited[0]) +
                         (waited.size() > 1 ? fmt::format(" and {} more", waited.size() - 1) : ""),
                     "wait", w, record.begin_ns, record.ready_ns, record, idle(record.idle_waiting_ns),
                     flags_args(causes, graph, *causes.last_of(record)));
      for (const ProfileCause& cause : waited)
        if (cause.task != kNone)
          writer.arrow(causes.name_of(cause), cause.region < 0 ? "event" : "flags", cause.worker, cause.end_ns, w,
                       record.ready_ns);
      writer.slice(task.name, operators.at(static_cast<size_t>(task.node)), w, record.ready_ns, record.end_ns, record,
                   idle(record.idle_busy_ns));
      previous = &record;
    }
  }
  return writer.finish();
}

}  // namespace megalith::runtime
