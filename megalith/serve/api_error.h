// An answer that says no, in the form that OpenAI's clients read: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "megalith/base/error.h"
#include "megalith/serve/http.h"

namespace megalith::serve {

class ApiError : public UserError {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = "")
      : UserError(message), status_(status), type_(std::move(type)), param_(std::move(param)) {}

  static ApiError invalid(const std::string& message, const std::string& param = "") {
    return {400, "invalid_request_error", message, param};
  }
  /// A wish that is understood, and that this server cannot do.
  static ApiError unsupported(const std::string& message, const std::string& param) {
    return {400, "not_supported_error", message, param};
  }
  static ApiError not_found(const std::string& message, const std::string& param = "") {
    return {404, "not_found_error", message, param};
  }
  /// Of a status that says it all.
  static ApiError of_status(int status, const std::string& message);

  /// A further member of the error, as JSON.
  ApiError& with(const std::string& key, const std::string& json);
  /// Clients try again by themselves what may go better then.
  ApiError& retry_after(int seconds);

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }
  /// {"error": {...}}
  std::string json() const;
  HttpReply reply() const;

 private:
  int status_;
  std::string type_, param_, more_;
  HttpHeaders headers_;
};

}  // namespace megalith::serve
