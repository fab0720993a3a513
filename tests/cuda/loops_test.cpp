// loopy's programs on a GPU: each under its schedule, held against the interpreter or, at the sizes that loopy has, against f64.
#include <gmock/gmock.h>

#include <deque>
#include <sstream>

#include "cuda/skip.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"
#include "megalith/runtime/cuda/memory.h"
#include "megalith/runtime/loop_kernel.h"
#include "support/loop_programs.h"
#include "support/sized_loop_programs.h"

namespace megalith::runtime {
namespace {

using loop::Array;
using megalith::testing::inputs_of;
using megalith::testing::kLoopPrograms;
using megalith::testing::LoopProgram;
using megalith::testing::missing_gpu;
using megalith::testing::sized_loop_programs;
using megalith::testing::SizedLoopProgram;
using megalith::testing::small_number;
using megalith::testing::tree_programs;
using megalith::testing::TreeProgram;
using megalith::testing::wrong_element;

using Sizes = std::map<std::string, int64_t>;

class CudaLoops : public ::testing::Test {
 protected:
  void SetUp() override {
    MEGALITH_SKIP_IF(missing_gpu());
    context_.emplace(jit::cuda_device().ordinal);
  }

  static LoopKernel kernel_of(const std::string& text, const std::string& steps) {
    LoopKernel kernel(text);
    std::istringstream lines(steps);
    for (std::string line; std::getline(lines, line);) kernel = kernel.then(line);
    return kernel;
  }

  // Inputs that are not given are made of `value`; what it wrote stands in `arrays` afterwards.
  static void run(const LoopKernel& kernel, const Sizes& sizes, loop::Arrays& arrays,
                  const std::function<double(size_t)>& value = small_number) {
    const LoopSignature& signature = kernel.signature();
    LoopCall call = kernel.call();
    for (size_t i = 0; i < signature.sizes().size(); ++i) call.sizes[i] = sizes.at(signature.sizes()[i]);
    kernel.find_sizes(call);
    std::deque<DeviceMemory> device;
    std::vector<std::vector<std::byte>> host;
    for (size_t i = 0; i < signature.tensors().size(); ++i) {
      LoopTensor& tensor = call.tensors[i];
      const std::string& name = signature.tensors()[i].name;
      const int64_t count = signature.shape_of(i, {call.sizes.data(), signature.sizes().size()}, tensor.shape);
      tensor.num_dims = static_cast<int>(signature.tensors()[i].shape.size());
      const int64_t bytes = count * dtype_bytes(tensor.dtype);
      host.emplace_back(static_cast<size_t>(bytes));
      if (!arrays.contains(name)) {
        Array& array = arrays[name] = Array::zeros({tensor.shape.begin(), tensor.shape.begin() + tensor.num_dims});
        if (signature.tensors()[i].role != loop::Role::output)
          for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = value(at);
      }
      for (int64_t at = 0; at < count; ++at)
        element_store(host[i].data(), tensor.dtype, at, arrays.at(name).values[static_cast<size_t>(at)]);
      device.emplace_back(std::max<int64_t>(bytes, 16), name).upload(host[i].data(), bytes);
      tensor.data = device.back().data();
      tensor.is_there = tensor.on_gpu = true;
    }
    kernel.run(call);
    for (size_t i = 0; i < signature.tensors().size(); ++i) {
      Array& array = arrays.at(signature.tensors()[i].name);
      device[i].download(host[i].data(), static_cast<int64_t>(host[i].size()));
      for (size_t at = 0; at < array.values.size(); ++at)
        array.values[at] = element_load(host[i].data(), call.tensors[i].dtype, static_cast<int64_t>(at));
    }
  }

  static void expect_interpreted(const LoopKernel& kernel, const std::vector<Sizes>& all_sizes,
                                 const std::function<double(size_t)>& value = small_number) {
    for (const Sizes& sizes : all_sizes) {
      loop::Arrays found;
      run(kernel, sizes, found, value);
      loop::Arrays wanted;
      const loop::Kernel& plain = kernel.schedule().schedule().origin();
      for (const loop::TensorArgument& tensor : plain.tensors)
        if (tensor.role == loop::Role::input || tensor.role == loop::Role::inout) {
          Array& array = wanted[tensor.name] = Array::zeros(found.at(tensor.name).shape);
          for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = value(at);
        }
      loop::interpret(plain, {sizes, {}}, wanted);
      for (const auto& [name, array] : wanted) EXPECT_EQ(found.at(name).values, array.values) << name;
    }
  }

 private:
  std::optional<CudaContextGuard> context_;
};

TEST_F(CudaLoops, L17_L19_ProgramsAndTheirSchedules) {
  for (const LoopProgram& program : kLoopPrograms) {
    SCOPED_TRACE(program.name);
    expect_interpreted(kernel_of(program.kernel, program.steps), program.sizes);
  }
}

TEST_F(CudaLoops, L17_ProgramsAtTheirSizes) {
  for (const SizedLoopProgram& program : sized_loop_programs()) {
    loop::Arrays arrays = inputs_of(program);
    run(kernel_of(program.kernel, program.steps), {{"n", program.n}}, arrays);
    EXPECT_EQ(wrong_element(program, arrays), -1) << program.name;
  }
}

TEST_F(CudaLoops, L18_ReductionsByATree) {
  for (const TreeProgram& program : tree_programs()) {
    SCOPED_TRACE(program.kernel + program.steps);
    expect_interpreted(kernel_of(program.kernel, program.steps), program.sizes, program.value);
  }
}

// What one launch hands the next is a temporary of everyone's; a batch has a block for each repetition.
TEST_F(CudaLoops, SeveralLaunchesAndRepetitions) {
  expect_interpreted(
      kernel_of("input x: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, x[i])\n",
                "split i 64 -> b i_i\nsplit_reduction b part\nduplicate b -> s in insn0\n"
                "tree i_i -> in_block p:l.0\nbarrier before insn0\ntag b g.0\ntree s 32 -> all q:lane"),
      {{{"n", 1}}, {{"n", 64}}, {{"n", 1000}}, {{"n", 100'000}}});
  const LoopKernel batch = kernel_of(
      "input a: f32[n, l]\ninput b: f32[l, m]\noutput c: f32[n, m]\nassume n >= 1 and m >= 1 and l >= 1\n"
      "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
      "batch r B shared b\ntile i j 8 8 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0\ntag r g.2");
  const Sizes sizes = {{"n", 19}, {"m", 13}, {"l", 7}, {"B", 3}};
  loop::Arrays found;
  run(batch, sizes, found);
  loop::Arrays wanted = {{"a", found.at("a")}, {"b", found.at("b")}};
  loop::interpret(batch.schedule().plain().kernel(), {sizes, {}}, wanted);
  EXPECT_EQ(found.at("c").values, wanted.at("c").values);
}

}  // namespace
}  // namespace megalith::runtime
