// What the server can be asked, as OpenAPI 3.1 (/openapi.json): for programs that make clients, pages and tests of it. Made of
// what requests are answered by: the routes (front.cpp) and the members that their readers look for (fields.h).
#pragma once

#include <string>
#include <vector>

#include "megalith/serve/fields.h"

namespace megalith::serve {

/// How a path is asked, and what it answers.
struct RouteFacts {
  const char* method;
  const char* path;  // as clients should write it; may end with "{id}"
  const char* summary;
  const char* answer;                  // a schema of answer_schemas.h, or a media type that has none
  MemberFacts (*members)() = nullptr;  // of the body that is sent
  bool streams = false;                // also answers with events, if it is asked to
  bool is_open = false;                // needs no key
  const char* flag = nullptr;          // that the query may have
};

/// `models`: names that a request may say, none if they are not known yet. `needs_key`: the server has keys.
std::string openapi_json(const std::vector<RouteFacts>& routes, const std::vector<std::string>& models, bool needs_key);

}  // namespace megalith::serve
