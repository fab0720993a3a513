#include "megalith/jit/loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/lex.h"

namespace megalith::jit {

namespace {

using loop::Array;
using loop::Role;

template <class T>
void pack_as(const std::vector<double>& from, std::vector<char>& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T value = static_cast<T>(from[i]);
    std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
  }
}
template <class T>
void unpack_as(const std::vector<char>& from, std::vector<double>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    to[i] = static_cast<double>(value);
  }
}

uint16_t bf16_bits(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Elements as they lie in memory.
std::vector<char> packed(const Array& array, DType dtype) {
  std::vector<char> bytes(std::max<size_t>(1, array.values.size()) * static_cast<size_t>(dtype_bytes(dtype)));
  switch (dtype) {
    case DType::f32: pack_as<float>(array.values, bytes); break;
    case DType::i8: pack_as<int8_t>(array.values, bytes); break;
    case DType::i32: pack_as<int32_t>(array.values, bytes); break;
    case DType::i64: pack_as<int64_t>(array.values, bytes); break;
    case DType::bf16:
      for (size_t i = 0; i < array.values.size(); ++i) {
        const uint16_t bits = bf16_bits(array.values[i]);
        std::memcpy(bytes.data() + 2 * i, &bits, 2);
      }
      break;
    default:
      throw UserError(fmt::format("[loops] no arrays of {} here: want f32, bf16 or whole numbers", dtype_name(dtype)));
  }
  return bytes;
}

void unpack(const std::vector<char>& bytes, DType dtype, Array& array) {
  switch (dtype) {
    case DType::f32: return unpack_as<float>(bytes, array.values);
    case DType::i8: return unpack_as<int8_t>(bytes, array.values);
    case DType::i32: return unpack_as<int32_t>(bytes, array.values);
    case DType::i64: return unpack_as<int64_t>(bytes, array.values);
    default:
      for (size_t i = 0; i < array.values.size(); ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        array.values[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      }
  }
}

}  // namespace

CompiledLoops CompiledLoops::compile(const std::vector<codegen::LoopSource>& sources, std::vector<std::string> flags) {
  MEGALITH_CHECK(!sources.empty(), "[loops] nothing to compile");
  BuildRequest request{.name = sources[0].name, .source = sources[0].prelude, .flags = std::move(flags)};
  for (const codegen::LoopSource& source : sources) request.source += source.text + "\n";
  CompiledLoops result;
  result.build_ = build_shared_object(request);
  return result;
}

void CompiledLoops::run(const codegen::LoopSource& source, const loop::Kernel& kernel, const loop::Binding& binding,
                        loop::Arrays& arrays) const {
  const std::string prefix = loop::message_prefix(kernel.name);
  const loop::Kernel bound = loop::bind_sizes(kernel, binding);
  std::vector<std::vector<char>> buffers;
  for (const std::string& name : source.tensors) {
    const loop::TensorArgument& tensor = *bound.find_tensor(name);
    std::vector<int64_t> shape;
    for (const loop::Expr& size : tensor.shape) {
      const auto value = loop::constant_value(size);
      MEGALITH_CHECK(value, "{} the size of {} is not known", prefix, name);
      shape.push_back(std::max<int64_t>(*value, 0));
    }
    Array empty = Array::zeros(shape);
    const auto given = arrays.find(name);
    MEGALITH_CHECK(given != arrays.end() || tensor.role == Role::output || tensor.role == Role::temporary,
                   "{} {} is not given", prefix, name);
    const bool is_given = given != arrays.end() && tensor.role != Role::temporary;
    MEGALITH_CHECK(!is_given || given->second.shape == shape, "{} {} has another shape than its kernel says", prefix,
                   name);
    buffers.push_back(packed(is_given ? given->second : empty, *tensor.dtype));
    if (tensor.role == Role::output && !is_given) arrays[name] = std::move(empty);
  }
  std::vector<void*> tensors;
  for (std::vector<char>& buffer : buffers) tensors.push_back(buffer.data());
  codegen::LoopFault fault;
  if (!source.checks.empty()) tensors.push_back(&fault);
  std::vector<int64_t> values;
  for (const std::string& size : source.sizes) {
    MEGALITH_CHECK(binding.sizes.contains(size), "{} the parameter {} has no value", prefix, size);
    values.push_back(binding.sizes.at(size));
  }
  const auto blocks = source.blocks(values);
  std::vector<long long> sizes(values.begin(), values.end());
  sizes.insert(sizes.end(), blocks.begin(), blocks.end());
  std::vector<float> attributes;
  for (const std::string& name : source.attributes) {
    const auto given = binding.attributes.find(name);
    const auto own = std::ranges::find(kernel.attributes, name, &loop::Attribute::name);
    attributes.push_back(static_cast<float>(given != binding.attributes.end() ? given->second : own->value));
  }
  auto* function = build_.library.function<void(void* const*, const long long*, const float*)>(source.name.c_str());
  function(tensors.data(), sizes.data(), attributes.data());
  source.check_fault(fault, prefix);
  for (size_t i = 0; i < buffers.size(); ++i) {
    const loop::TensorArgument& tensor = *bound.find_tensor(source.tensors[i]);
    if (tensor.role == Role::output || tensor.role == Role::inout)
      unpack(buffers[i], *tensor.dtype, arrays.at(tensor.name));
  }
}

}  // namespace megalith::jit
