#include "megalith/model/json.h"

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/json_reason.h"
#include "megalith/runtime/memory.h"

namespace megalith {

using nlohmann::json;

namespace {

// No file that models come with nests deeper than about ten; a parser's stack should not be the reader's choice.
constexpr size_t kMostLevels = 64;

// Builds the document as nlohmann's own handler does, and refuses what that one lets pass: two members of one name (it
// keeps the last, so two readers may see two different files) and bottomless nesting.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(json& root, const std::string& name) : root_(root), name_(name) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    MEGALITH_CHECK(!open_.back()->contains(key), "{}: the key \"{}\" stands twice in one object", name_, key);
    slot_ = &(*open_.back())[key];
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    throw UserError(fmt::format("{} is not JSON, near byte {}: {}", name_, position, json_reason(error.what())));
  }

 private:
  json* place(json&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }
  bool add(json&& value) { return place(std::move(value)), true; }
  bool open(json&& value) {
    MEGALITH_CHECK(open_.size() < kMostLevels, "{} nests deeper than {} levels", name_, kMostLevels);
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  json& root_;
  const std::string& name_;
  std::vector<json*> open_;  // containers not yet closed; only the innermost one grows, so the pointers stay good
  json* slot_ = nullptr;     // where the value of the last key goes
};

}  // namespace

JsonFile::JsonFile(JsonFile&&) noexcept = default;
JsonFile& JsonFile::operator=(JsonFile&&) noexcept = default;
JsonFile::~JsonFile() = default;

JsonFile JsonFile::read(const std::string& path, size_t most_bytes) {
  std::error_code code;
  const uintmax_t bytes = std::filesystem::file_size(path, code);
  // What has no size, file_read() refuses by its name.
  MEGALITH_CHECK(code || bytes <= most_bytes, "{} has {} bytes, want at most {}", path, bytes, most_bytes);
  try {
    return parse(file_read(path), path);
  } catch (const std::bad_alloc&) {
    runtime::throw_out_of_memory("reading " + path, static_cast<int64_t>(code ? 0 : bytes));
  }
}

JsonFile JsonFile::parse(std::string_view text, std::string name) {
  JsonFile file;
  file.name_ = std::make_unique<std::string>(std::move(name));
  file.value_ = std::make_unique<json>();
  Builder builder(*file.value_, *file.name_);
  json::sax_parse(text.begin(), text.end(), &builder);
  return file;
}

JsonValue JsonFile::root() const { return JsonValue(value_.get(), name_.get(), ""); }

JsonValue JsonValue::child(const json& value, std::string_view key) const {
  return JsonValue(&value, file_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!is_object()) fail(fmt::format("is {}, want an object", excerpt()));
  auto member = value_->find(key);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return child(*member, key);
}

bool JsonValue::has(std::string_view key) const { return is_object() && value_->contains(key); }

JsonValue JsonValue::at(std::string_view key) const {
  if (auto member = find(key)) return *member;
  fail(fmt::format("lacks \"{}\"", key));
}

bool JsonValue::is_object() const { return value_->is_object(); }
bool JsonValue::is_array() const { return value_->is_array(); }
bool JsonValue::is_string() const { return value_->is_string(); }

const std::string& JsonValue::string() const {
  if (!is_string()) fail(fmt::format("is {}, want a string", excerpt()));
  return value_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("is {}, want true or false", excerpt()));
  return value_->get<bool>();
}

int64_t JsonValue::integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) fail(fmt::format("is {}, want a whole number", excerpt()));
  const bool fits = !value_->is_number_unsigned() || value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  const int64_t value = fits ? value_->get<int64_t>() : 0;
  if (!fits || value < least || value > most) fail(fmt::format("is {}, want {} to {}", excerpt(), least, most));
  return value;
}

double JsonValue::number(double least, double most) const {
  if (!value_->is_number()) fail(fmt::format("is {}, want a number", excerpt()));
  const double value = value_->get<double>();
  if (!(value >= least && value <= most)) fail(fmt::format("is {}, want {} to {}", excerpt(), least, most));
  return value;
}

size_t JsonValue::size() const { return value_->size(); }

void JsonValue::each_element(const std::function<void(const JsonValue&)>& visit) const {
  if (!is_array()) fail(fmt::format("is {}, want an array", excerpt()));
  size_t index = 0;
  for (const json& element : *value_) visit(JsonValue(&element, file_, fmt::format("{}[{}]", path_, index++)));
}

std::vector<JsonValue> JsonValue::elements() const {
  std::vector<JsonValue> result;
  each_element([&](const JsonValue& element) { result.push_back(element); });
  return result;
}

void JsonValue::each_member(const std::function<void(const std::string&, const JsonValue&)>& visit) const {
  if (!is_object()) fail(fmt::format("is {}, want an object", excerpt()));
  for (const auto& [key, value] : value_->get_ref<const json::object_t&>()) visit(key, child(value, key));
}

void JsonValue::fail(const std::string& message) const {
  if (path_.empty()) throw UserError(fmt::format("{} {}", *file_, message));
  throw UserError(fmt::format("{}: \"{}\" {}", *file_, path_, message));
}

std::string JsonValue::excerpt() const {
  if (is_object() || is_array()) return fmt::format("{} of {}", is_object() ? "an object" : "an array", size());
  std::string text = value_->dump();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace megalith
