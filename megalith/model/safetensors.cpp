#include "megalith/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/base/log.h"
#include "megalith/base/mapped_copy.h"
#include "megalith/model/json.h"
#include "megalith/model/model_folder.h"
#include "megalith/model/near_names.h"

namespace megalith {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian, and are used as mapped");

namespace {

// The limit of the reference implementation; a real header has some hundred bytes for each tensor.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxDimensions = 16;

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr DTypeName kDTypes[] = {
    {"BF16", DType::bf16}, {"F16", DType::f16}, {"F32", DType::f32}, {"I32", DType::i32}, {"I64", DType::i64}};

std::optional<DType> dtype_find(const std::string& name) {
  for (const DTypeName& row : kDTypes)
    if (name == row.name) return row.dtype;
  return std::nullopt;
}

const char* dtype_file_name(DType dtype) {
  for (const DTypeName& row : kDTypes)
    if (dtype == row.dtype) return row.name;
  throw InternalError("a dtype has no name in safetensors files");
}

// Bytes of a tensor, or nothing if that does not fit into 63 bits.
std::optional<int64_t> tensor_bytes(const std::vector<int64_t>& shape, DType dtype) {
  int64_t bytes = dtype_bytes(dtype);
  for (int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return bytes;
}

std::vector<int64_t> read_shape(const JsonValue& value) {
  std::vector<int64_t> shape;
  value.each_element([&](const JsonValue& extent) { shape.push_back(extent.integer(0)); });
  if (shape.size() > kMaxDimensions)
    value.fail(fmt::format("has {} dimensions, want at most {}", shape.size(), kMaxDimensions));
  return shape;
}

// The JSON text of the header, or a complaint that names the usual cause.
std::string read_header(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  constexpr std::string_view kPointer = "version https://git-lfs";
  std::string begin(std::min(bytes.size(), kPointer.size()), '\0');
  mapped_copy(begin.data(), bytes.data(), begin.size());
  MEGALITH_CHECK(begin != kPointer, "{} is a Git LFS pointer, not the weights: fetch them with \"git lfs pull\"",
                 file.path());
  MEGALITH_CHECK(bytes.size() >= 8, "{} has {} bytes, too few for a safetensors file: download it again", file.path(),
                 bytes.size());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, begin.data(), 8);
  MEGALITH_CHECK(header_bytes <= kMaxHeaderBytes,
                 "{} announces a header of {} bytes, want at most {}: it is not a safetensors file", file.path(),
                 header_bytes, kMaxHeaderBytes);
  MEGALITH_CHECK(header_bytes <= bytes.size() - 8,
                 "{} announces a header of {} bytes but has only {} bytes: download it again", file.path(),
                 header_bytes, bytes.size());
  std::string header(header_bytes, '\0');
  mapped_copy(header.data(), bytes.data() + 8, header.size());
  return header;
}

struct Extent {
  int64_t begin;
  int64_t end;
  std::string name;
};

void check_no_overlap(std::vector<Extent> extents, const std::string& file) {
  std::erase_if(extents, [](const Extent& extent) { return extent.begin == extent.end; });
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i)
    MEGALITH_CHECK(extents[i].begin >= extents[i - 1].end,
                   "{}: tensors \"{}\" and \"{}\" overlap: [{}, {}) and [{}, {})", file, extents[i - 1].name,
                   extents[i].name, extents[i - 1].begin, extents[i - 1].end, extents[i].begin, extents[i].end);
}

}  // namespace

Weights Weights::open(const std::string& path) {
  Weights weights;
  weights.path_ = path;
  std::error_code unreadable;  // then it is not a folder either
  if (!std::filesystem::is_directory(path, unreadable)) {
    MEGALITH_CHECK(file_exists(path), "no weights at {}: no such file or folder", path);
    weights.add_file(path);
    return weights;
  }
  const std::string single = path + "/model.safetensors";
  const std::string index = path + "/model.safetensors.index.json";
  if (file_is_named(single)) {
    weights.add_file(single);
  } else {
    MEGALITH_CHECK(file_is_named(index),
                   "no weights in {}: want model.safetensors or model.safetensors.index.json{} (--load-format dummy "
                   "makes up random ones)",
                   path, other_weights(path));
    weights.add_index(path, index);
  }
  return weights;
}

void Weights::add_file(const std::string& path, const std::function<bool(const std::string& name)>& takes) {
  const MappedFile& file = files_.emplace_back(path);
  const std::string header_text = read_header(file);
  const std::span<const std::byte> data = file.bytes().subspan(8 + header_text.size());
  const JsonFile header = JsonFile::parse(header_text, path);
  std::vector<Extent> extents;

  header.root().each_member([&](const std::string& name, const JsonValue& value) {
    if (name == "__metadata__") return;
    Entry entry{.tensor = {.name = name, .dtype = DType::f32, .shape = read_shape(value.at("shape")), .bytes = {}},
                .unsupported = "",
                .file = path};
    const std::vector<JsonValue> offsets = value.at("data_offsets").elements();
    if (offsets.size() != 2) value.fail("has data_offsets that are not [begin, end]");
    const int64_t begin = offsets[0].integer(0);
    const int64_t end = offsets[1].integer(0);
    if (begin > end || static_cast<uint64_t>(end) > data.size())
      value.fail(fmt::format("has data_offsets [{}, {}], but the file holds {} bytes of data: download it again", begin,
                             end, data.size()));
    entry.tensor.bytes = data.subspan(begin, end - begin);

    const std::string& dtype_text = value.at("dtype").string();
    if (std::optional<DType> dtype = dtype_find(dtype_text)) {
      entry.tensor.dtype = *dtype;
      const std::optional<int64_t> bytes = tensor_bytes(entry.tensor.shape, *dtype);
      if (!bytes || *bytes != end - begin)
        value.fail(fmt::format("has {} bytes of data, but shape [{}] of {} wants {}", end - begin,
                               fmt::join(entry.tensor.shape, ", "), dtype_text,
                               bytes ? fmt::to_string(*bytes) : "more than fit into 63 bits"));
      if (reinterpret_cast<uintptr_t>(entry.tensor.bytes.data()) % dtype_bytes(*dtype) != 0 && *bytes > 0) {
        // Files from before the format padded its header. A copy costs memory, but no reader has to know.
        log_info("{}: \"{}\" is not aligned, copying it", path, name);
        realigned_.push_back(std::make_unique<std::byte[]>(*bytes));
        mapped_copy(realigned_.back().get(), entry.tensor.bytes.data(), *bytes);
        entry.tensor.bytes = {realigned_.back().get(), static_cast<size_t>(*bytes)};
      }
    } else {
      entry.unsupported = dtype_text;
    }

    extents.push_back({begin, end, name});
    if (takes && !takes(name)) return;
    const auto [place, is_new] = entries_.emplace(name, std::move(entry));
    if (is_new) return;
    absent_[name] = fmt::format("tensor \"{}\" is in two files, {} and {}, and the index names neither", name,
                                place->second.file, path);
  });
  check_no_overlap(std::move(extents), path);
}

void Weights::add_index(const std::string& folder, const std::string& index_path) {
  const JsonFile index = JsonFile::read(index_path, kMaxIndexBytes);
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  index.root().at("weight_map").each_member([&](const std::string& name, const JsonValue& value) {
    const std::string& shard = value.string();
    // A shard lies beside its index: a path in there would let a model name any file on the machine.
    if (shard.find('/') != std::string::npos || shard.find('\0') != std::string::npos ||
        !shard.ends_with(".safetensors"))
      value.fail(fmt::format("is {}, want the name of a .safetensors file in {}", value.excerpt(), folder));
    shard_of[name] = shard;
    shards.insert(shard);
  });
  MEGALITH_CHECK(std::ranges::any_of(shards, [&](const std::string& s) { return file_exists(folder + "/" + s); }),
                 "{} names {} files, none of which is there: download them", index_path, shards.size());
  for (const std::string& shard : shards) {
    const std::string path = folder + "/" + shard;
    if (!file_exists(path)) continue;
    add_file(path, [&](const std::string& name) {
      const auto listed = shard_of.find(name);
      return listed == shard_of.end() || listed->second == shard;
    });
  }
  for (const auto& [name, shard] : shard_of) {
    if (entries_.contains(name)) continue;
    absent_[name] = file_exists(folder + "/" + shard)
                        ? fmt::format("{} says that tensor \"{}\" is in {}, but it is not", index_path, name, shard)
                        : fmt::format("{} says that tensor \"{}\" is in {}, which is not there: download it",
                                      index_path, name, shard);
  }
  for (const auto& [name, reason] : absent_) entries_.erase(name);
}

const WeightTensor* Weights::find(std::string_view name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return nullptr;
  MEGALITH_CHECK(entry->second.unsupported.empty(),
                 "{}: tensor \"{}\" is of dtype {}, supported are BF16, F16, F32, I32, I64: convert the model",
                 entry->second.file, name, entry->second.unsupported);
  return &entry->second.tensor;
}

const WeightTensor& Weights::get(std::string_view name) const {
  if (const WeightTensor* tensor = find(name)) return *tensor;
  if (const auto absent = absent_.find(name); absent != absent_.end()) throw UserError(absent->second);
  throw UserError(
      fmt::format("no tensor \"{}\" among the {} of {}{}", name, entries_.size(), path_, near_names(name, names())));
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : entries_) result.push_back(name);
  return result;
}

void Weights::rename(const std::function<std::string(const std::string&)>& name_of) {
  decltype(entries_) entries;
  for (auto& [old_name, entry] : entries_) {
    std::string name = name_of(old_name);
    if (name.empty()) continue;
    const auto [place, is_new] = entries.emplace(std::move(name), std::move(entry));
    MEGALITH_CHECK(is_new, "{} has the tensor \"{}\" twice: as \"{}\" and as \"{}\"", path_, place->first,
                   place->second.tensor.name, old_name);
  }
  entries_ = std::move(entries);
  decltype(absent_) absent;
  for (auto& [old_name, reason] : absent_)
    if (std::string name = name_of(old_name); !name.empty()) absent.emplace(std::move(name), std::move(reason));
  absent_ = std::move(absent);
}

void Weights::join(Weights other) {
  for (auto& [name, entry] : other.entries_) {
    const bool is_new = entries_.emplace(name, std::move(entry)).second;
    MEGALITH_CHECK(is_new, "{} and {} both have the tensor \"{}\"", path_, other.path_, name);
  }
  absent_.merge(std::move(other.absent_));
  std::ranges::move(other.files_, std::back_inserter(files_));
  std::ranges::move(other.realigned_, std::back_inserter(realigned_));
}

void Weights::check_files() const {
  for (const MappedFile& file : files_) file.check_whole();
}

int64_t Weights::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, entry] : entries_) bytes += static_cast<int64_t>(entry.tensor.bytes.size());
  return bytes;
}

std::string safetensors_bytes(std::span<const WeightTensor> tensors) {
  std::vector<const WeightTensor*> order;
  for (const WeightTensor& tensor : tensors) {
    const std::optional<int64_t> bytes = tensor_bytes(tensor.shape, tensor.dtype);
    MEGALITH_CHECK(bytes == static_cast<int64_t>(tensor.bytes.size()),
                   "cannot write: tensor \"{}\" has {} bytes, which are not shape [{}] of {}", tensor.name,
                   tensor.bytes.size(), fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype));
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const WeightTensor* a, const WeightTensor* b) {
    return std::pair(-dtype_bytes(a->dtype), a->name) < std::pair(-dtype_bytes(b->dtype), b->name);
  });

  std::string header = "{";
  size_t offset = 0;
  for (const WeightTensor* tensor : order) {
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", json_quote(tensor->name), dtype_file_name(tensor->dtype),
                          fmt::join(tensor->shape, ","), offset, offset + tensor->bytes.size());
    offset += tensor->bytes.size();
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');

  const uint64_t header_bytes = header.size();
  std::string content(reinterpret_cast<const char*>(&header_bytes), 8);
  content.reserve(8 + header.size() + offset);
  content += header;
  for (const WeightTensor* tensor : order)
    content.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
  return content;
}

void safetensors_write(const std::string& path, std::span<const WeightTensor> tensors) {
  file_write_atomic(path, safetensors_bytes(tensors));
}

}  // namespace megalith
