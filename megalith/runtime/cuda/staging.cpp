#include "megalith/runtime/cuda/staging.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/mapped_copy.h"
#include "megalith/base/threads.h"
#include "megalith/runtime/topology.h"

namespace megalith::runtime {

using jit::CudaDriver;

namespace {

constexpr unsigned kNonBlocking = 1;
/// More than this many copying cores fill no link that there is today.
constexpr int kMaxReaders = 8;

/// Page-locked memory, and the event after which it may be filled again.
struct Buffer {
  PinnedMemory memory;
  CudaEventOwner free;

  explicit Buffer(int64_t bytes) : memory(bytes, "the upload of weights") {
    const CudaDriver& driver = CudaDriver::get();
    driver.check(driver.event_create(free.out(), jit::kCudaEventWithoutTiming), "making an event");
  }
  // The card may still read the memory that goes now.
  ~Buffer() { CudaDriver::get().event_synchronize(free.get()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

}  // namespace

StagedUpload::StagedUpload(int ordinal, int64_t total_bytes, StagingOptions options)
    : ordinal_(ordinal), buffer_bytes_(options.buffer_bytes) {
  MEGALITH_ASSERT(buffer_bytes_ > 0 && options.num_readers >= 0, "[cuda] {} readers with buffers of {} bytes",
                  options.num_readers, buffer_bytes_);
  const CudaContextGuard context(ordinal);
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.stream_create(stream_.out(), kNonBlocking), "making a stream");
  const int num_readers =
      options.num_readers > 0 ? options.num_readers : std::clamp(cpu_topology().num_usable(), 1, kMaxReaders);
  progress_.emplace("loading weights", total_bytes, ProgressUnit::bytes);
  readers_ = start_helpers(num_readers, [this] { read(); });
  if (readers_.empty())
    throw SystemError(
        "[cuda] no thread can be started that copies weights to the GPU: raise the limit of threads (ulimit -u, or the "
        "container's), or end other programs");
}

StagedUpload::~StagedUpload() {
  {
    const std::lock_guard guard(mutex_);
    closed_ = true;
    queue_.clear();
  }
  work_.notify_all();
  readers_.clear();  // joined: they use the stream
}

void StagedUpload::upload(jit::CudaAddress to, const void* from, int64_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  {
    const std::lock_guard guard(mutex_);
    throw_if_failed();
    for (int64_t at = 0; at < bytes; at += buffer_bytes_)
      queue_.push_back({to + static_cast<jit::CudaAddress>(at), source + at,
                        static_cast<size_t>(std::min(buffer_bytes_, bytes - at))});
  }
  work_.notify_all();
}

void StagedUpload::fence() {
  std::unique_lock guard(mutex_);
  idle_.wait(guard, [this] { return !failure_.empty() || (queue_.empty() && num_busy_ == 0); });
  throw_if_failed();
}

void StagedUpload::finish() {
  fence();
  const CudaContextGuard context(ordinal_);
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.stream_synchronize(stream()), "copying weights to the GPU");
  progress_.reset();
}

void StagedUpload::read() {
  try {
    const CudaContextGuard context(ordinal_);
    const CudaDriver& driver = CudaDriver::get();
    Buffer buffers[2] = {Buffer(buffer_bytes_), Buffer(buffer_bytes_)};
    Piece piece;
    for (int turn = 0; take(&piece); turn ^= 1) {
      const Buffer& buffer = buffers[turn];
      driver.check(driver.event_synchronize(buffer.free.get()), "copying weights to the GPU");
      mapped_copy(buffer.memory.data(), piece.from, piece.bytes);
      driver.check(driver.copy_to_device_async(piece.to, buffer.memory.data(), piece.bytes, stream()),
                   "copying weights to the GPU");
      driver.check(driver.event_record(buffer.free.get(), stream()), "copying weights to the GPU");
      done(piece);
    }
  } catch (const std::exception& error) { fail(error.what()); }
}

bool StagedUpload::take(Piece* piece) {
  std::unique_lock guard(mutex_);
  work_.wait(guard, [this] { return closed_ || !failure_.empty() || !queue_.empty(); });
  if (closed_ || !failure_.empty()) return false;
  *piece = queue_.front();
  queue_.pop_front();
  ++num_busy_;
  return true;
}

void StagedUpload::done(const Piece& piece) {
  if (progress_) progress_->advance(static_cast<int64_t>(piece.bytes));
  {
    const std::lock_guard guard(mutex_);
    --num_busy_;
  }
  idle_.notify_all();
}

void StagedUpload::fail(const std::string& message) {
  {
    const std::lock_guard guard(mutex_);
    if (failure_.empty()) failure_ = message;  // the first one is the cause
    queue_.clear();
  }
  work_.notify_all();
  idle_.notify_all();
}

void StagedUpload::throw_if_failed() const {
  if (!failure_.empty()) throw SystemError(failure_);
}

}  // namespace megalith::runtime
