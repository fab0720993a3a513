#include "megalith/engine/graph_service.h"

#include <algorithm>
#include <thread>

#include "megalith/base/error.h"

namespace megalith::engine {

GraphService::GraphService(GraphRunner& runner) : runner_(runner), mail_(runner.mail()) {
  MEGALITH_CHECK(mail_.mailbox,
                 "the graph takes no requests while it runs: it has no node of the operator serve_batch");
}

void GraphService::open() {
  const std::lock_guard lock(mutex_);
  runner_.mail_open();
}

void GraphService::begin(int64_t slot, std::span<const int32_t> prompt, int64_t step, int64_t limit) {
  const auto length = static_cast<int64_t>(prompt.size());
  MEGALITH_CHECK(slot >= 0 && slot < mail_.num_slots, "there is no slot {}: there are {}", slot, mail_.num_slots);
  MEGALITH_CHECK(length >= 1 && length < limit && limit <= mail_.longest,
                 "a request has a prompt of {} tokens and ends at {}, want 1 to {} and a token more at least", length,
                 limit, mail_.longest - 1);
  MEGALITH_CHECK(step >= 0 && step < length, "a request of {} tokens begins at {}, want 0 to {}", length, step,
                 length - 1);
  const std::lock_guard lock(mutex_);
  std::ranges::copy(prompt, mail_.inbox + slot * mail_.longest);
  std::vector<int32_t> fields(runtime::Command::kFields);
  fields[runtime::kServeStep] = static_cast<int32_t>(step);
  fields[runtime::kServePrompt] = static_cast<int32_t>(length);
  fields[runtime::kServeLimit] = static_cast<int32_t>(limit);
  post(runtime::CommandKind::begin, slot, fields);
}

void GraphService::cancel(int64_t slot) {
  MEGALITH_CHECK(slot >= 0 && slot < mail_.num_slots, "there is no slot {}: there are {}", slot, mail_.num_slots);
  const std::lock_guard lock(mutex_);
  post(runtime::CommandKind::cancel, slot);
}

void GraphService::end() {
  const std::lock_guard lock(mutex_);
  post(runtime::CommandKind::end, 0);
}

// The kernel takes all commands once an iteration, and there are few for a slot.
void GraphService::post(runtime::CommandKind kind, int64_t slot, const std::vector<int32_t>& fields) {
  runtime::Command command{static_cast<runtime::u32>(kind), static_cast<runtime::u32>(slot), {}};
  std::ranges::copy(fields, command.fields);
  while (!runtime::command_post(mail_.mailbox, command)) {
    if (runtime::load_acquire(&mail_.mailbox->closed) != 0) return;  // nobody takes any more
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<runtime::MailRecord> GraphService::take(std::chrono::milliseconds longest) {
  std::vector<runtime::MailRecord> records;
  runtime::MailRecord record{};
  if (!runner_.mail_take(&record, longest)) return records;
  do records.push_back(record);
  while (runtime::mailbox_take(mail_.mailbox, &record, 0));
  return records;
}

}  // namespace megalith::engine
