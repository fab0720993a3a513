#include "megalith/model/json.h"

#include <cmath>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/json_reason.h"
#include "megalith/base/printable.h"
#include "megalith/runtime/memory.h"

namespace megalith {

using nlohmann::json;

namespace {

// No file that models come with nests deeper than about ten; a parser's stack should not be the reader's choice.
constexpr size_t kMaxLevels = 64;
// A value takes 16 to 100 bytes of memory, and as little as two in the file. The largest published tokenizer has two
// million of them.
constexpr size_t kMaxValues = 16'000'000;
// Of a value in a message.
constexpr size_t kMaxExcerptBytes = 80;

// Python writes three numbers that JSON does not have. The parser takes them as these, which nobody writes, and which
// have as many letters, so that places in complaints stay right.
constexpr std::string_view kNaN = "NaN", kNaNNumber = "0E9";
constexpr std::string_view kInfinity = "Infinity", kInfinityNumber = "0E999999";

// `text` with those in it replaced, or nothing if it has none. What stands in strings is left alone.
std::optional<std::string> with_json_numbers(std::string_view text) {
  if (text.find(kNaN) == std::string_view::npos && text.find(kInfinity) == std::string_view::npos) return std::nullopt;
  std::string result(text);
  auto is_word = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '.');
  };
  auto replace = [&](size_t at, std::string_view word, std::string_view number) {
    if (!text.substr(at).starts_with(word) || is_word(at + word.size())) return;
    if (at > 0 && (is_word(at - 1) || text[at - 1] == '+' || (text[at - 1] == '-' && word == kNaN))) return;
    result.replace(at, word.size(), number);
  };
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      in_string = !in_string;
    else if (!in_string && text[i] == kNaN[0])
      replace(i, kNaN, kNaNNumber);
    else if (!in_string && text[i] == kInfinity[0])
      replace(i, kInfinity, kInfinityNumber);
  }
  return result;
}

double number_of(double value, std::string_view text) {
  const bool negative = text.starts_with('-');
  if (text == kNaNNumber) return std::numeric_limits<double>::quiet_NaN();
  if (text.substr(negative) != kInfinityNumber) return value;
  return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

// Builds the document as nlohmann's own handler does, and refuses what that one lets pass: two members of one name (it
// keeps the last, so two readers may see two different files) and bottomless nesting.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(json& root, const std::string& name, JsonOrder* order) : root_(root), name_(name), order_(order) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& text) override { return add(number_of(value, text)); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    MEGALITH_CHECK(!open_.back()->contains(key), "{}: the key \"{}\" stands twice in one object", name_, key);
    auto& members = open_.back()->get_ref<json::object_t&>();
    const auto member = members.try_emplace(key).first;
    slot_ = &member->second;
    // The object's own address changes where it stands in an array; that of its members' container does not.
    if (order_) (*order_)[&members].push_back(&member->first);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    throw UserError(fmt::format("{} is not JSON, near byte {}: {}", name_, position, json_reason(error.what())));
  }

 private:
  json* place(json&& value) {
    MEGALITH_CHECK(num_values_++ < kMaxValues, "{} holds more than {} values: that is no file of a model", name_,
                   kMaxValues);
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }
  bool add(json&& value) { return place(std::move(value)), true; }
  bool open(json&& value) {
    MEGALITH_CHECK(open_.size() < kMaxLevels, "{} nests deeper than {} levels", name_, kMaxLevels);
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  json& root_;
  const std::string& name_;
  JsonOrder* order_;
  std::vector<json*> open_;  // containers not yet closed; only the innermost one grows, so the pointers stay good
  json* slot_ = nullptr;     // where the value of the last key goes
  size_t num_values_ = 0;
};

}  // namespace

JsonFile::JsonFile(JsonFile&&) noexcept = default;
JsonFile& JsonFile::operator=(JsonFile&&) noexcept = default;
JsonFile::~JsonFile() = default;

JsonFile JsonFile::read(const std::string& path, size_t most_bytes, bool keeps_order) {
  std::error_code code;
  const uintmax_t bytes = std::filesystem::file_size(path, code);
  // What has no size, file_read() refuses by its name.
  MEGALITH_CHECK(code || bytes <= most_bytes, "{} has {} bytes, want at most {}", path, bytes, most_bytes);
  try {
    return parse(file_read(path), path, keeps_order);
  } catch (const std::bad_alloc&) {
    runtime::throw_out_of_memory("reading " + path, static_cast<int64_t>(code ? 0 : bytes));
  }
}

JsonFile JsonFile::parse(std::string_view text, std::string name, bool keeps_order) {
  JsonFile file;
  file.name_ = std::make_unique<std::string>(std::move(name));
  file.value_ = std::make_unique<json>();
  if (keeps_order) file.order_ = std::make_unique<JsonOrder>();
  Builder builder(*file.value_, *file.name_, file.order_.get());
  const std::optional<std::string> replaced = with_json_numbers(text);
  if (replaced) text = *replaced;
  try {
    json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::bad_alloc&) {
    file.value_.release();  // NOLINT: its destructor asks for memory, and there is none
    throw;
  }
  return file;
}

JsonValue JsonFile::root() const { return JsonValue(value_.get(), name_.get(), order_.get(), ""); }

JsonValue JsonValue::child(const json& value, std::string_view key) const {
  return JsonValue(&value, file_, order_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
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
bool JsonValue::is_boolean() const { return value_->is_boolean(); }
bool JsonValue::is_integer() const { return value_->is_number_integer(); }
bool JsonValue::is_null() const { return value_->is_null(); }

const std::string& JsonValue::string() const {
  if (!is_string()) fail(fmt::format("is {}, want a string", excerpt()));
  return value_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("is {}, want true or false", excerpt()));
  return value_->get<bool>();
}

int64_t JsonValue::integer(int64_t least, int64_t most) const {
  const double real = value_->is_number_float() ? value_->get<double>() : 0;
  if (!value_->is_number() || real != std::floor(real)) fail(fmt::format("is {}, want a whole number", excerpt()));
  const bool fits = value_->is_number_unsigned() ? value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                                 : std::fabs(real) < 0x1p63;
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

std::optional<double> JsonValue::find_number() const {
  return value_->is_number() ? std::optional(value_->get<double>()) : std::nullopt;
}

size_t JsonValue::size() const { return value_->size(); }

void JsonValue::each_element(const std::function<void(const JsonValue&)>& visit) const {
  if (!is_array()) fail(fmt::format("is {}, want an array", excerpt()));
  size_t index = 0;
  for (const json& element : *value_) visit(JsonValue(&element, file_, order_, fmt::format("{}[{}]", path_, index++)));
}

std::vector<JsonValue> JsonValue::elements() const {
  std::vector<JsonValue> result;
  each_element([&](const JsonValue& element) { result.push_back(element); });
  return result;
}

void JsonValue::each_member(const std::function<void(const std::string&, const JsonValue&)>& visit) const {
  if (!is_object()) fail(fmt::format("is {}, want an object", excerpt()));
  const auto& members = value_->get_ref<const json::object_t&>();
  if (!order_) {
    for (const auto& [key, value] : members) visit(key, child(value, key));
  } else if (const auto order = order_->find(&members); order != order_->end()) {
    for (const std::string* key : order->second) visit(*key, child(members.at(*key), *key));
  }
}

void JsonValue::fail(const std::string& message) const {
  if (path_.empty()) throw UserError(fmt::format("{} {}", *file_, message));
  throw UserError(fmt::format("{}: \"{}\" {}", *file_, path_, message));
}

std::string JsonValue::excerpt() const {
  if (is_object() || is_array()) return fmt::format("{} of {}", is_object() ? "an object" : "an array", size());
  if (value_->is_number_float() && !std::isfinite(value_->get<double>()))
    return std::isnan(value_->get<double>()) ? "NaN" : value_->get<double>() < 0 ? "-Infinity" : "Infinity";
  return shortened(value_->dump(), kMaxExcerptBytes);
}

}  // namespace megalith
