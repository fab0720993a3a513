// A value of a request's body as JSON again, with the members of its objects in the order that the client gave them.
#pragma once

#include <string>

#include "megalith/model/json.h"

namespace megalith::serve {

std::string json_text(const JsonValue& value);

}  // namespace megalith::serve
