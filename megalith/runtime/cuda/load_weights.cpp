// How a program's weights come to the card: where its streams lie, and what fills them.
#include <algorithm>

#include "megalith/base/options.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/kernels/stream_order.h"
#include "megalith/machine/machine.h"
#include "megalith/runtime/cuda/program.h"
#include "megalith/runtime/cuda/staging.h"

namespace megalith::runtime {

using jit::CudaDriver;

// Others may share the caches of a kernel whose own streams and workers are on no sides.
void CudaProgram::place_streams() {
  deal_streams();
  if (may_have_sides()) caches_.find(device_, module_.get());
}

// Where every multiprocessor has a worker that may be near what it reads.
bool CudaProgram::may_have_sides() const {
  const auto num_workers = static_cast<int>(streams_.streams.size());
  return option_integer("MEGALITH_SIDES") != 0 && num_workers == device_.num_multiprocessors && num_workers % 2 == 0 &&
         machine::gpu(device_.architecture).copies_by_map;
}

// On the sides of the L2, where it has any and every multiprocessor has a worker that may be there; else worker by worker.
// Partners are neighbours, on one side. Chunks that several workers take are near to one of them: a prompt of 512 tokens of Qwen3-8B takes 24.7 ms so on an H100, and 16.7 ms else.
void CudaProgram::deal_streams() {
  const auto num_workers = static_cast<int>(streams_.streams.size());
  const u64 num_blocks = may_have_sides() && !streams_.is_shared() && !has_partners_ ? streams_.num_blocks() : 0;
  stream_memory_ = DeviceMemory(std::max(streams_.bytes(), static_cast<int64_t>(num_blocks) * stream::kBlockBytes),
                                "the streams of weights");
  scales_ =
      DeviceMemory(streams_.scale_bytes(std::max(streams_.num_chunks(), 2 * num_blocks)), "the scales of weights");
  if (num_blocks == 0) return;
  const std::optional<SideMap> sides =
      find_sides(device_, module_.get(), stream_memory_.address(), stream_memory_.bytes());
  if (!sides) return;
  const std::vector<u8> maps = maps_of_chunks(stream_memory_.address(), num_blocks);
  if (maps.empty()) return;
  const std::vector<u32> chunks = deal_to_sides(streams_, *sides), worker_of_sm = sides->worker_of_sm();
  taken_ = DeviceMemory(static_cast<int64_t>(sizeof(u32)) * num_workers, "the workers' worker_of_sm");
  sides_ = {.maps = copy(maps.data(), maps.size(), "the streams' maps"),
            .chunks = copy(chunks.data(), chunks.size(), "the kinds of chunks"),
            .worker_of_sm = copy(worker_of_sm.data(), worker_of_sm.size(), "the workers' worker_of_sm"),
            .taken = taken_.data<u32>(),
            .num_sms = static_cast<u32>(worker_of_sm.size()),
            .launch = 0};
}

void CudaProgram::upload_records(int matrix, const void* weights, StagedUpload& upload, const DeviceMemory& table) {
  std::vector<stream::PackRecord>& records = streams_.records.at(matrix);
  for (stream::PackRecord& record : records) {
    record.weights = static_cast<const unsigned short*>(weights);
    record.scales = scales_.data<u8>();
  }
  upload.upload(table.address(), records.data(), static_cast<int64_t>(records.size() * sizeof(stream::PackRecord)));
}

void CudaProgram::pack(int matrix, jit::CudaStream stream, const DeviceMemory& table) {
  const CudaDriver& driver = CudaDriver::get();
  jit::CudaFunction function = nullptr;
  driver.check(driver.module_function(&function, module_.get(), "megalith_pack"), "finding megalith_pack");
  u8* to = stream_memory_.data<u8>();
  stream::PackRecord* from = table.data<stream::PackRecord>();
  bool on_sides = sides_.maps != nullptr;
  void* parameters[] = {&to, &from, &on_sides};
  const auto num_records = static_cast<unsigned>(streams_.records.at(matrix).size());
  const jit::CudaLaunchConfig config{num_records, 1, 1, 256, 1, 1, 0, stream, nullptr, 0};
  driver.check(driver.launch(&config, function, parameters, nullptr),
               fmt::format("packing \"{}\"", graph_->tensor(matrix).name));
}

// What is read in place goes straight there. Then matrix by matrix, which lies on the card as it is, for good or in `raw`
// until the next one comes, into the streams of all programs.
void CudaProgram::load_weights(const std::vector<CudaProgram*>& programs) {
  struct Streamed {
    const graph::Tensor* tensor;
    const void* placed = nullptr;
    std::vector<std::pair<CudaProgram*, int>> in = {};  // and its number there
  };
  std::vector<Streamed> matrices;
  std::map<std::string, size_t> known;  // of matrices, by name
  std::map<std::string, int64_t> constants;
  int64_t raw_bytes = 0;
  std::map<CudaProgram*, DeviceMemory> tables;
  for (CudaProgram* program : programs) {
    for (const graph::Tensor& tensor : program->graph_->tensors())
      if (tensor.kind == graph::TensorKind::constant) constants[tensor.name] = tensor.bytes();
    raw_bytes = std::max(raw_bytes, program->streams_.totals.largest_packed);
    for (const auto& [matrix, records] : program->streams_.records) {
      const graph::Tensor& tensor = program->graph_->tensor(matrix);
      const auto [found, is_new] = known.try_emplace(tensor.name, matrices.size());
      if (is_new) matrices.push_back({&tensor});
      Streamed& streamed = matrices[found->second];
      if (program->addresses_[static_cast<size_t>(matrix)] != nullptr)
        streamed.placed = program->addresses_[static_cast<size_t>(matrix)];
      streamed.in.emplace_back(program, matrix);
    }
  }
  int64_t total = 0;
  for (const auto& [name, bytes] : constants) total += bytes;
  if (total == 0) return;

  const CudaDriver& driver = CudaDriver::get();
  const int ordinal = programs.front()->device_.ordinal;
  const CudaContextGuard context(ordinal);
  const DeviceMemory raw(raw_bytes, "a matrix of weights");
  for (CudaProgram* program : programs)
    tables[program] = DeviceMemory(program->streams_.totals.table_bytes(), "the chunks of a matrix");
  // The upload's stream waits for no other, and memory is still being cleared.
  driver.check(driver.stream_synchronize(nullptr), "clearing memory of the GPU");
  StagedUpload upload(ordinal, total);
  for (const CudaProgram* program : programs)
    for (const graph::Tensor& tensor : program->graph_->tensors())
      if (const auto placed = program->tensors_.find(tensor.name);
          tensor.kind == graph::TensorKind::constant && placed != program->tensors_.end())
        upload.upload(placed->second.address(), program->host_memory(tensor), tensor.bytes());
  for (const Streamed& streamed : matrices) {
    if (streamed.placed == nullptr)
      upload.upload(raw.address(), programs.front()->host_memory(*streamed.tensor), streamed.tensor->bytes());
    const void* const weights = streamed.placed != nullptr ? streamed.placed : raw.data<const std::byte>();
    for (const auto& [program, matrix] : streamed.in)
      program->upload_records(matrix, weights, upload, tables.at(program));
    upload.fence();
    for (const auto& [program, matrix] : streamed.in) program->pack(matrix, upload.stream(), tables.at(program));
  }
  upload.finish();
  for (CudaProgram* program : programs) {
    program->streams_.records.clear();
    program->graph_ = nullptr;
  }
}

}  // namespace megalith::runtime
