// megalith bench load: how fast a model's weights reach the GPU, as a share of what the link between host and GPU can
// do.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/format.h"
#include "megalith/base/json_quote.h"
#include "megalith/engine/memory_map.h"
#include "megalith/jit/stage.h"
#include "megalith/model/weight_names.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/cuda/staging.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

using jit::CudaDriver;

struct BenchLoadOptions {
  ModelOptions model;
  int64_t readers = 0, buffer_bytes = runtime::StagingOptions{}.buffer_bytes;
  bool json = false;
};

struct Rates {
  int64_t bytes = 0;            // of weights
  double link = 0;              // bytes a second, as are the next two
  double first = 0, again = 0;  // the second time the pages are in memory for certain
};

// Large copies from page-locked memory, one behind the other: nothing is faster.
double link_rate() {
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr int kWarm = 4, kTimed = 64;
  const CudaDriver& driver = CudaDriver::get();
  const runtime::PinnedMemory from(kBytes, "measuring the link");
  const runtime::DeviceMemory to(kBytes, "measuring the link");
  jit::CudaStream stream = nullptr;
  jit::CudaEvent begin = nullptr, end = nullptr;
  driver.check(driver.stream_create(&stream, 1), "making a stream");
  driver.check(driver.event_create(&begin, 0), "making an event");
  driver.check(driver.event_create(&end, 0), "making an event");
  for (int i = 0; i < kWarm + kTimed; ++i) {
    if (i == kWarm) driver.check(driver.event_record(begin, stream), "recording an event");
    driver.check(driver.copy_to_device_async(to.address(), from.data(), kBytes, stream), "copying to the GPU");
  }
  driver.check(driver.event_record(end, stream), "recording an event");
  driver.check(driver.event_synchronize(end), "copying to the GPU");
  float ms = 0;
  driver.check(driver.event_elapsed(&ms, begin, end), "reading the time");
  driver.event_destroy(end);
  driver.event_destroy(begin);
  driver.stream_destroy(stream);
  return static_cast<double>(kBytes) * kTimed / (static_cast<double>(ms) / 1e3);
}

// All weights one after the other to the same place: the link does not care where they go.
double staged_rate(const graph::Graph& graph, const engine::MemoryMap& memory, const BenchLoadOptions& options,
                   int ordinal) {
  int64_t total = 0, largest = 0;
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.kind == graph::TensorKind::constant)
      total += tensor.bytes(), largest = std::max(largest, tensor.bytes());
  const runtime::DeviceMemory to(largest, "the largest weight");
  const auto start = std::chrono::steady_clock::now();
  runtime::StagedUpload upload(
      ordinal, total, {.num_readers = static_cast<int>(options.readers), .buffer_bytes = options.buffer_bytes});
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.kind == graph::TensorKind::constant)
      upload.upload(to.address(), memory.addresses().at(tensor.name), tensor.bytes());
  upload.finish();
  return static_cast<double>(total) / (jit::milliseconds_since(start) / 1e3);
}

std::string gigabytes(double rate) { return fmt::format("{:.1f} GB/s", rate / 1e9); }
std::string share(double rate, double link) { return fmt::format("{:.0f} %", 100 * rate / link); }

jit::CudaDeviceInfo gpu() {
  try {
    return jit::cuda_device();
  } catch (const SystemError& error) {
    throw SystemError(
        fmt::format("{} (bench load itself needs a GPU: without one there is nothing to measure)", error.what()));
  }
}

int bench_load(const BenchLoadOptions& options) {
  if (options.model.target == "cpu") throw UsageError{"bench load copies to a GPU: --target cannot be cpu"};
  config_read(options.model.folder());
  const jit::CudaDeviceInfo device = gpu();  // none: said before weights are read or made up
  const ModelGraph model = model_graph(options.model);
  std::optional<Weights> weights;
  engine::MemoryMap memory;
  if (options.model.dummy()) {
    memory.bind_random(model.graph, 0);
  } else {
    ModelConfig config = model.config;
    weights = open_weights(options.model.folder(), config);
    memory.bind_weights(model.graph, *weights);
  }
  memory.bind_rope(model.graph, model.config, model.options.max_seq_len);

  const runtime::CudaContextGuard context(device.ordinal);
  Rates rates;
  for (const graph::Tensor& tensor : model.graph.tensors())
    if (tensor.kind == graph::TensorKind::constant) rates.bytes += tensor.bytes();
  rates.link = link_rate();
  rates.first = staged_rate(model.graph, memory, options, device.ordinal);
  rates.again = staged_rate(model.graph, memory, options, device.ordinal);

  if (options.json) {
    print(fmt::format(
        R"({{"model": {}, "device": {}, "bytes": {}, "link_bytes_per_s": {:.0f}, "first_bytes_per_s": {:.0f}, "again_bytes_per_s": {:.0f}, "share": {:.4f}}}
)",
        json_quote(options.model.folder()), json_quote(device.name), rates.bytes, rates.link, rates.first, rates.again,
        rates.again / rates.link));
    return kExitOk;
  }
  Table table({"what", ">rate", ">share", ">time for " + format_bytes(rates.bytes)});
  auto row = [&](const char* what, double rate) {
    table.row(
        {what, gigabytes(rate), share(rate, rates.link), format_ms(static_cast<double>(rates.bytes) / rate * 1e3)});
  };
  row("the link, from locked memory", rates.link);
  row("weights, the first time", rates.first);
  row("weights, again", rates.again);
  print(table.text());
  return kExitOk;
}

Action declare_bench_load(Arguments& arguments) {
  auto options = std::make_shared<BenchLoadOptions>();
  options->model.target = "cuda";
  arguments.integer("--readers", options->readers, "threads that read weights (one a core, at most 8)", 0, 64);
  arguments.integer("--buffer", options->buffer_bytes, "bytes of each locked buffer; 8M is 8 MiB", 4096, 1 << 30);
  arguments.flag("--json", options->json, "prints the figures as JSON");
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return bench_load(*options); };
}

}  // namespace

Command bench_load_command() {
  return {"bench load", "how fast a model's weights reach the GPU",
          "megalith bench load models/shapes/Qwen3-8B --load-format dummy", declare_bench_load};
}

}  // namespace megalith::tools
