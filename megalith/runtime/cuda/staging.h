// Copies a model's weights from the host to the GPU at the speed of the link. Pages of a mapped file are ordinary
// memory, which the driver copies slowly and one call at a time; so reader threads copy them into a few page-locked
// buffers, and the card fetches one buffer while the next is being filled.
//
//   StagedUpload upload(program.ordinal(), total_bytes);
//   upload.upload(staging, tensor.bytes.data(), bytes);  // returns at once
//   upload.fence();                                      // what is launched on stream() from here on sees the bytes
//   launch_pack(upload.stream(), packed, staging);
//   upload.upload(staging, next.bytes.data(), bytes);    // waits on the card until pack has read the last ones
//   upload.finish();
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "megalith/base/progress.h"
#include "megalith/jit/cuda/driver.h"
#include "megalith/runtime/cuda/memory.h"

namespace megalith::runtime {

struct StagingOptions {
  /// One core copies about 10 GB/s and the link takes up to five times that. 0: as many as pay, of those there are.
  int num_readers = 0;
  /// Each reader has two: one that it fills, and one that the card fetches.
  int64_t buffer_bytes = int64_t{1} << 20;
};

class StagedUpload {
 public:
  /// `total_bytes` that will be uploaded, for the progress bar; it is there until finish().
  StagedUpload(int ordinal, int64_t total_bytes, StagingOptions options = {});
  /// Gives up what is not on its way yet.
  ~StagedUpload();
  StagedUpload(const StagedUpload&) = delete;
  StagedUpload& operator=(const StagedUpload&) = delete;

  /// Enqueues a copy; `from` must stay as it is until the next fence() or finish(). Between two fences copies may reach
  /// the card in any order. SystemError if an earlier one failed, as of all functions here.
  void upload(jit::CudaAddress to, const void* from, int64_t bytes);
  /// Waits until all copies so far are in the stream (not until they have ended): later work there follows them.
  void fence();
  /// Waits until all copies, and all other work of the stream, have ended.
  void finish();
  jit::CudaStream stream() const { return stream_.get(); }

 private:
  struct Piece {
    jit::CudaAddress to;
    const std::byte* from;
    size_t bytes;
  };

  void read();
  bool take(Piece* piece);
  void done(const Piece& piece);
  void fail(const std::string& message);
  void throw_if_failed() const;  // with the mutex held

  const int ordinal_;
  const int64_t buffer_bytes_;
  CudaStreamOwner stream_;
  std::optional<Progress> progress_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_, idle_;
  std::deque<Piece> queue_;
  int num_busy_ = 0;  // readers with a piece that is not in the stream yet
  bool closed_ = false;
  std::string failure_;

  std::vector<std::jthread> readers_;
};

}  // namespace megalith::runtime
