#include "megalith/model/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

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

// Files of weights in other forms, by the ends of their names. Those of one checkpoint come in many parts.
struct Format {
  const char* begin;
  const char* end;
  const char* advice;
};
constexpr Format kFormats[] = {
    {"pytorch_model", ".bin",
     "a pickle, which is not read, since it can run code: convert it with python3 -c 'from transformers import "
     "AutoModelForCausalLM as M; M.from_pretrained(\"OLD\", dtype=\"auto\").save_pretrained(\"NEW\")', and copy the "
     "tokenizer's files to NEW"},
    {"consolidated", ".pth",
     "Meta's own form: take the model in Hugging Face's, or convert it with python3 -m "
     "transformers.models.llama.convert_llama_weights_to_hf"},
    {"consolidated", ".safetensors",
     "Mistral's own form, whose tensors have other names: take the files that begin with \"model\" as well"},
    {"", ".gguf", "a GGUF file, which is not read: take the safetensors that it was made from"},
    {"adapter_model", "",
     "an adapter without its model: merge them with peft (merge_and_unload(), then save_pretrained())"},
    {"tf_model", ".h5", "weights of TensorFlow, which are not read: take the model with safetensors"},
    {"flax_model", ".msgpack", "weights of Flax, which are not read: take the model with safetensors"},
    {"", ".onnx", "an ONNX graph, which is not read: take the model with safetensors"},
    {"model-", ".safetensors", "a shard, but model.safetensors.index.json is missing: download it, too"},
    {"", ".safetensors", "a file of another name: call it model.safetensors if it holds all of the model"},
};

}  // namespace

std::string other_weights(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (fs::directory_iterator file(folder, unreadable), end; !unreadable && file != end; file.increment(unreadable))
    names.push_back(file->path().filename().string());
  std::ranges::sort(names);
  for (const Format& format : kFormats)
    for (const std::string& name : names)
      if (name.starts_with(format.begin) && name.ends_with(format.end))
        return fmt::format("; there is {}, {}", name, format.advice);
  return "";
}

void check_model_folder(const std::string& folder) {
  const std::string config = folder + "/config.json";
  if (file_exists(config)) return;
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (status.type() == fs::file_type::not_found) throw UserError(missing_text(folder));
  MEGALITH_CHECK(status.type() != fs::file_type::none, "cannot read the folder {}: {}", folder, code.message());
  MEGALITH_CHECK(
      status.type() == fs::file_type::directory,
      "{} is a file, want the model's folder, with config.json and model.safetensors in it{}", folder,
      folder.ends_with(".gguf") ? "; GGUF files are not read: take the safetensors that it was made from" : "");
  if (file_is_named(config)) throw UserError(link_text(config));
  fs::directory_iterator(folder, code);
  MEGALITH_CHECK(!code, "cannot read the folder {}: {}", folder, code.message());
  throw UserError(fmt::format("{} is not a model folder: it has no config.json{}", folder, other_weights(folder)));
}

}  // namespace megalith
