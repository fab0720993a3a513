// The functions that chat templates find: Jinja's, and the two that transformers adds, raise_exception and
// strftime_now.
#include <algorithm>
#include <ctime>

#include "megalith/base/error.h"
#include "megalith/model/template_context.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

// As Jinja's sandbox has it.
constexpr int64_t kMostRange = 100'000;

TemplateValue range(const TemplateCall& call) {
  call.check(3);
  const int64_t count = std::ssize(call.positional());
  const int64_t begin = count > 1 ? call.integer(0, "", 0) : 0, end = call.integer(count > 1 ? 1 : 0, "", 0);
  const int64_t step = call.integer(2, "", 1);
  if (count == 0) call.fail("got no arguments, want 1 to 3");
  if (step == 0) call.fail("got the step 0");
  const auto distance = static_cast<__int128>(end) - begin;
  const __int128 length = step > 0 ? (distance + step - 1) / step : (distance + step + 1) / step;
  if (length > kMostRange) call.fail(fmt::format("makes more than {} numbers", kMostRange));
  std::vector<TemplateValue> result;
  for (int64_t i = 0; i < static_cast<int64_t>(length); ++i) result.emplace_back(begin + i * step);
  call.context().charge(std::ssize(result));
  return TemplateValue::list(std::move(result));
}

TemplateValue dict(const TemplateCall& call) {
  call.check(1, {});
  std::vector<std::pair<TemplateValue, TemplateValue>> members;
  if (!call.positional().empty()) {
    if (!call.at(0).is(Kind::dict)) call.fail(fmt::format("got {}, want a dictionary", call.at(0).describe()));
    members = call.at(0).dict().members;
  }
  return TemplateValue::dict(std::move(members));
}

TemplateValue strftime_now(const TemplateCall& call) {
  call.check(1, {"format"});
  const std::string& format = call.string(0, "format").text;
  const std::time_t now = call.context().now();
  std::tm parts{};
  localtime_r(&now, &parts);
  char buffer[1024];
  const size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &parts);
  if (length == 0 && !format.empty()) call.fail("got a format that makes no text, or one too long");
  return std::string(buffer, length);
}

}  // namespace

const std::vector<std::string_view>& template_functions() {
  static const std::vector<std::string_view> kNames = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
  return kNames;
}

TemplateValue template_function(const std::string& name, const TemplateCall& call) {
  call.context().charge(1);
  if (name == "range") return range(call);
  if (name == "strftime_now") return strftime_now(call);
  if (name == "dict") {
    std::vector<std::pair<TemplateValue, TemplateValue>> members;
    const TemplateValue base = dict(TemplateCall(call.context(), "dict()", call.positional()));
    members = base.dict().members;
    for (const auto& [key, value] : call.named()) members.emplace_back(key, value);
    return TemplateValue::dict(std::move(members));
  }
  if (name == "raise_exception") {
    call.check(1, {"message"});
    call.context().fail(fmt::format("the template refuses these messages: {}", call.at(0, "message").to_text().text));
  }
  call.fail("is not known");
}

}  // namespace megalith
