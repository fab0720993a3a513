// What to say of a path that is no model's folder: it is the first thing that anybody types, and there are many ways to
// type it wrong.
#pragma once

#include <string>

namespace megalith {

/// UserError unless `folder` has a config.json: that it is not there, is a file, a link that leads nowhere or the name
/// of a model on a hub, and what to try.
void check_model_folder(const std::string& folder);

/// `; there is pytorch_model.bin: ...`, if `folder` holds weights in a form that is not read, with what to do; else "".
std::string other_weights(const std::string& folder);

}  // namespace megalith
