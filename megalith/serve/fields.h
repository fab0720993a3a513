// The members of a request's body, checked one by one: each complaint is a 400 that names the member. A member that is
// null is absent, and one that nobody asks for is not looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/json.h"
#include "megalith/serve/api_error.h"

namespace megalith::serve {

/// A body, parsed: ApiError (400) unless it is a JSON object. Nests no deeper than JsonFile takes.
JsonFile parse_body(std::string_view body);

/// A member that a reader looks for. So what a server says of its requests (openapi.h) is what it reads.
struct MemberFact {
  std::string key;
  std::string schema = {};  // JSON; "": the reader takes values of several forms (member_schemas.h)
  bool is_required = false;
};
using MemberFacts = std::vector<MemberFact>;

class Fields {
 public:
  /// `facts`: takes in what is looked for.
  explicit Fields(JsonValue object, MemberFacts* facts = nullptr) : object_(std::move(object)), facts_(facts) {}

  bool has(const char* key) const { return find(key).has_value(); }
  /// `schema`: what the reader takes; "": as member_schemas.h has it.
  std::optional<JsonValue> find(const char* key, std::string_view schema = "") const;
  /// ApiError if it is not there.
  JsonValue need(const char* key, std::string_view schema = "") const;
  std::optional<double> number(const char* key, double least, double most) const;
  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const;
  std::optional<std::string> string(const char* key) const;
  std::optional<bool> flag(const char* key) const;
  bool flag(const char* key, bool otherwise) const;
  /// An array of whole numbers.
  std::optional<std::vector<int>> integers(const char* key, int64_t least, int64_t most) const;

  /// read(value), whatever it complains about named as `key`.
  template <class Read>
  static auto read(const char* key, const JsonValue& value, Read read) {
    try {
      return read(value);
    } catch (const ApiError&) { throw; } catch (const UserError& error) {
      throw ApiError::invalid(error.what(), key);
    }
  }

  const JsonValue& object() const { return object_; }

 private:
  template <class Schema>
  std::optional<JsonValue> look(const char* key, Schema schema) const;
  void note(MemberFact fact) const;

  JsonValue object_;
  MemberFacts* facts_;
};

}  // namespace megalith::serve
