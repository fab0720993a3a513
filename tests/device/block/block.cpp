// One block: the worker of a GPU (runtime/cuda/worker.cuh) over the host's ptx.cuh, with a body that does what a task
// of the tests declares. Compiled once for each block, in a namespace of its own, since what is __shared__ are
// variables of this file.
#define MEGALITH_JOIN(a, b) a##b
#define MEGALITH_NAME(a, b) MEGALITH_JOIN(a, b)
#define megalith MEGALITH_NAME(megalith_block_, MEGALITH_BLOCK)

// Two slots in the ring, so that the loader warp waits often.

#include "megalith/kernels/cuda/common/worker_config.cuh"
namespace megalith::kernels {
inline constexpr WorkerConfig kWorkerConfig = {.shared_bytes = 8192 + 2 * 16384, .stream_rows = 1};
}

#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/runtime/cuda/worker.cuh"

namespace megalith::kernels {
__attribute__((aligned(1024))) u8 dynamic_shared[stream::kVariablesBytes + kRingSlots * stream::kChunkBytes];
static_assert(kRingSlots == 2);
}  // namespace megalith::kernels

namespace megalith::runtime {

namespace {

// Every thread of the block its share: first all is read, then all is written.
void run_body(u32, const Frame& frame) {
  using namespace kernels;
  const auto& body = *static_cast<const host::TaskBody*>(frame.operands[0]);
  const u32 i = frame.iteration - body.first_iteration;
  const Epoch epoch{frame.iteration + 1, frame.times};
  auto demand = [&](bool holds) {
    if (!holds) body.wrong->fetch_add(1, std::memory_order_relaxed);
  };
  host::dawdle();
  demand(frame.num_operands == body.operands.size());
  for (u32 o = 0; o < frame.num_operands; ++o) demand(frame.operands[o] == body.operands[o]);
  for (u32 s = 0; body.sizes != nullptr && s < kIterationSizes; ++s)
    demand(iteration_size(body.sizes + s) == host::TaskBody::size(i, s));

  for (size_t k = static_cast<size_t>(thread()); k < body.reads.size(); k += kThreads) {
    const host::Element& element = body.reads[k];
    if (element.is_word) {
      const u64* const at = reinterpret_cast<const u64*>(element.at);
      u64 word = load_word(at);
      wait_word(word, at, epoch);
      demand(has_stopped() || payload(word) == static_cast<u32>(body.expected[i][k]));
    } else {
      demand(host::load(element) == body.expected[i][k]);
    }
  }
  inputs_are_ready(epoch);
  if (i == body.fault_in) demand(inside(FaultNote{&frame.head.index}, i64{100} + thread(), i64{100}, body.index) == 0);
  RingPlace ring = frame.ring;
  for (u32 c = 0; c < body.num_chunks; ++c) {
    barrier_wait(&ring_barriers().full[ring.slot], ring.parity);
    const auto* const words = reinterpret_cast<const host::U32*>(ring_slot(ring.slot));
    constexpr u32 kStep = 64 * kThreads;
    const int size = body.on_sides ? host::chunk_size(body.stream_seed, body.first_chunk + c) : 0;
    const u32 num_words = static_cast<u32>(stream::chunk_bytes(size)) / 4;
    for (u32 at = static_cast<u32>(thread()) * 64; at < num_words; at += kStep)
      demand(words[at] == host::chunk_word(body.stream_seed, body.first_chunk + c, at));
    warp_sync();
    warp_arrive(&ring_barriers().empty[ring.slot]);
    ring = ring + 1;
  }
  block_sync();
  for (size_t k = static_cast<size_t>(thread()); k < body.writes.size(); k += kThreads) {
    const host::Element& element = body.writes[k];
    if (element.at == body.lost && i == body.lost_in) continue;
    if (element.is_word)
      store_word(reinterpret_cast<u64*>(element.at), static_cast<u32>(body.stamp(i)), epoch);
    else
      host::store(element, body.stamp(i));
  }
  if (thread() != 0) return;
  if (body.stop != nullptr) {
    if (i == body.stop_in) *body.stop = 1;
    for (u32 s = 0; s < kIterationSizes; ++s) body.sizes[s] = host::TaskBody::size(i + 1, s);
  }
  auto* const mail = static_cast<Mailbox*>(body.mail);
  if (mail != nullptr) {
    // As kernels/cuda/scheduler/advance.cuh.
    NextMail& next = next_mail();
    if (next.is_known == 0) next = {mailbox_writer(mail), 1};
    if (mailbox_reserve(mail, next.writer, 1, kernels::abort_word())) {
      mailbox_write(next.writer, 0, {.token = static_cast<i32>(i)}, monotonic_ns());
      next.writer.head += 1;
      frame.mail = mail;
      frame.mail_head = next.writer.head;
    }
  }
  body.runs->fetch_add(1, std::memory_order_relaxed);
}

void prepare(host::Block* block) {
  auto add = [&](const char* name, const auto& array) {
    block->names.push_back({name, &array[0], &array[0] + sizeof(array) / sizeof(array[0])});
  };
  add("frame_full", frame_barriers().full);
  add("frame_done", frame_barriers().done);
  add("frame_empty", frame_barriers().empty);
  add("ring_barriers.full", kernels::ring_barriers().full);
  add("ring_barriers.empty", kernels::ring_barriers().empty);
  block->names.push_back({"ended", &ended(), &ended() + 1});
}

void run_thread(const void* launch, unsigned worker) {
  worker_run(
      *static_cast<const Launch*>(launch), worker, run_body, [](const Frame&) {}, [](const Frame&) {});
  host::self.block->warps[static_cast<size_t>(kernels::warp())].leave(kernels::lane());
}

}  // namespace
}  // namespace megalith::runtime

namespace host {
extern const BlockCode MEGALITH_NAME(block_code_, MEGALITH_BLOCK) = {megalith::runtime::prepare,
                                                                     megalith::runtime::run_thread};
}
