#include "megalith/model/model_folder.h"

#include <algorithm>
#include <filesystem>

#include "megalith/base/error.h"
#include "megalith/base/file.h"

namespace megalith {

namespace fs = std::filesystem;

namespace {

// "Qwen/Qwen3-0.6B": two words as Hugging Face has them, and no path that begins with a folder which is there.
bool looks_like_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == path.size() || path.starts_with('.')) return false;
  std::error_code unreadable;
  return path.find('/', slash + 1) == std::string::npos && !fs::exists(path.substr(0, slash), unreadable);
}

std::string link_text(const std::string& path) {
  std::error_code unreadable;
  return fmt::format("{} is a link to {}, which is not there", path, fs::read_symlink(path, unreadable).string());
}

std::string missing_text(const std::string& folder) {
  if (file_is_named(folder)) return link_text(folder);
  if (!looks_like_hub_name(folder)) return fmt::format("there is no folder {}", folder);
  const std::string name = folder.substr(folder.find('/') + 1);
  return fmt::format(
      "there is no folder {}; models are not downloaded: try \"hf download {} --local-dir {}\", then give the folder "
      "{}",
      folder, folder, name, name);
}

}  // namespace

void check_model_folder(const std::string& folder) {
  const std::string config = folder + "/config.json";
  if (file_exists(config)) return;
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (status.type() == fs::file_type::not_found) throw UserError(missing_text(folder));
  MEGALITH_CHECK(status.type() != fs::file_type::none, "cannot read the folder {}: {}", folder, code.message());
  MEGALITH_CHECK(status.type() == fs::file_type::directory,
                 "{} is a file, want the model's folder, with config.json and model.safetensors in it", folder);
  if (file_is_named(config)) throw UserError(link_text(config));
  fs::directory_iterator(folder, code);
  MEGALITH_CHECK(!code, "cannot read the folder {}: {}", folder, code.message());
  throw UserError(fmt::format("{} is not a model folder: it has no config.json", folder));
}

}  // namespace megalith
