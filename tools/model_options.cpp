#include "tools/model_options.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/machine/machine.h"
#include "megalith/model/draft_model.h"
#include "megalith/model/json.h"
#include "megalith/model/weight_names.h"
#include "megalith/optimize/limits.h"
#include "megalith/runtime/batch.h"
#include "megalith/task/partition.h"
#include "tools/command.h"

namespace megalith::tools {

namespace {

bool has_weights(const std::string& folder) {
  return file_exists(folder + "/model.safetensors") || file_exists(folder + "/model.safetensors.index.json");
}

int64_t quant_columns_of(const std::string& kind) {
  constexpr int64_t kColumns = 32;
  if (kind == "none") return 0;
  if (kind == "int8") return kColumns;
  int64_t columns = 0;
  const std::string_view number = std::string_view(kind).substr(std::min<size_t>(5, kind.size()));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), columns);
  if (!kind.starts_with("int8:") || error != std::errc() || end != number.data() + number.size() || columns <= 0)
    throw UsageError{fmt::format("--quantization {}: want none, int8, or int8:N for N columns to a scale", kind)};
  return columns;
}

std::optional<DType> kv_dtype_of(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  if (name == "float32") return DType::f32;
  return dtype_parse(name);
}

// "cuda" is the GPU of this machine; whoever only makes code needs none.
std::string target_of(const std::string& target) {
  try {
    return jit::target_with_architecture(target);
  } catch (const SystemError& error) {
    throw SystemError(fmt::format(
        "{}, or name an architecture, such as --target cuda:sm_90a, whose code any machine can make", error.what()));
  }
}

std::vector<std::string> targets() {
  std::vector<std::string> all = {"cpu", "cuda"};
  for (const machine::Gpu& gpu : machine::gpus()) all.push_back(fmt::format("cuda:{}", gpu.architecture));
  return all;
}

}  // namespace

void ModelOptions::declare(Arguments& arguments, const char* context, const char* batch) {
  arguments.positional("MODEL", positional, "folder with config.json, model.safetensors and tokenizer.json", false);
  arguments.group("System");
  arguments.text("-m,--model", model, "MODEL", "the model, in place of the first argument");
  arguments.integer("-c,--max-seq-len,--ctx-size,--max-model-len", max_seq_len,
                    fmt::format("longest sequence in tokens, prompt included; 2K is 2048 (0 or -1: {})", context), 0,
                    std::numeric_limits<int64_t>::max(), 0);
  arguments.integer("--max-batch,--max-num-seqs,--parallel", max_batch,
                    fmt::format("requests at a time (0: {}); also -np", batch), 0, 1024, 0);
  arguments.integer("-b,--max-batched-tokens,--max-num-batched-tokens", max_rows,
                    "tokens worked on at a time, over all requests (0: 192, with AMX 512; on a GPU 4)", 0, 4096, 0);
  arguments.integers(
      "--regimes", regimes,
      "further kernels for so many tokens at a time, fewer than -b; the one that the load asks for works; 0: "
      "none (on a GPU without -b 1, of models up to 10 GiB 2, 8 and 64, as far as they are fewer than -b, a step of "
      "all "
      "sequences has so many and memory has room; else 0)",
      0, 4096);
  arguments.integer(
      "--prompt-rows", prompt_rows,
      "tokens of prompts worked on at a time, by a kernel of their own; 0: by the one that makes tokens (on "
      "a GPU without -b 512, and 256 for what is left, of small models 1024 and 2048 too, or 128, by its shared "
      "memory, "
      "if memory has room; else 0)",
      0, 4096);
  arguments.flag("--batch-invariant", batch_invariant,
                 "a sequence's tokens do not depend on what else is worked on; as --regimes 0 --prompt-rows 0");
  arguments.integer(
      "--draft-tokens,--draft-max,--num-speculative-tokens", draft_tokens,
      "guess up to so many tokens beside the next one, from what stood in the text before, and keep those that "
      "are right: the text is the same and comes sooner where it repeats; 7 is a good number (0: none)",
      0, 15, 0);
  arguments.text("--draft-model,--model-draft,--speculative-model", draft_model, "DIR",
                 "a small model of the same tokenizer guesses, 4 tokens unless --draft-tokens says how many; also -md");
  arguments.text("--speculative-config", speculative_config, "JSON",
                 "the same in one, as vLLM has it: {\"model\": DIR, \"num_speculative_tokens\": N}, or {\"method\": "
                 "\"ngram\", \"num_speculative_tokens\": N, \"prompt_lookup_min\": M}");
  arguments.integer("--draft-match", draft_match, "tokens that must have stood there before for a guess (3)", 1,
                    batch::kLongestMatch);
  arguments.integer("--page-size,--block-size", page_size, "positions per page of the KV cache (16)", 1, 65536);
  arguments.integer("--num-pages", num_pages,
                    "pages of the KV cache, for all requests (0: enough for the longest sequences)", 0, 1 << 30, 0);
  arguments.choice("--kv-cache-dtype", kv_dtype, {"auto", "f32", "bf16", "f16", "float32", "bfloat16", "float16"},
                   "element type of the KV cache (auto: f32; on a GPU, and with AMX, bf16)");
  arguments.text("--quantization", quantization, "KIND",
                 "int8: matrices in eight bits, a scale for each 32 columns of a row; int8:128 for each 128 (none)");
  arguments.integer("-t,--threads,--workers", num_workers,
                    "workers of the kernel (0: MEGALITH_THREADS, or every core; on a GPU every multiprocessor)", 0,
                    task::kMaxWorkers, 0);
  arguments.choice("--load-format", load_format, {"auto", "dummy"}, "dummy: random weights, only config.json is read");
  arguments.choice(
      "--target", target, targets(),
      "what to make code for; cuda: the GPU of this machine (that if there is one and -t is not given, else cpu)");
  arguments.when_read([this] {
    if (target.empty()) target = num_workers > 0 ? "cpu" : jit::default_target();
  });
}

std::string ModelOptions::folder() const {
  if (positional.empty() && model.empty()) throw UsageError{"which model? give its folder, e.g. models/storyteller"};
  if (!positional.empty() && !model.empty() && positional != model)
    throw UsageError{fmt::format("two models: \"{}\" and --model \"{}\"", positional, model)};
  return positional.empty() ? model : positional;
}

int ModelOptions::workers() const {
  return num_workers > 0 ? static_cast<int>(num_workers) : engine::default_num_workers(target);
}

Speculation ModelOptions::speculation() const {
  Speculation result = {draft_model, draft_tokens, draft_match};
  if (speculative_config.empty()) return result;
  if (!draft_model.empty() || draft_tokens != 0)
    throw UsageError{"--speculative-config says all of drafts: leave out --draft-model and --draft-tokens"};
  const JsonFile file = JsonFile::parse(speculative_config, "--speculative-config");
  const JsonValue config = file.root();
  if (!config.is_object()) config.fail(fmt::format("is {}, want an object", config.excerpt()));
  std::string method;
  config.each_member([&](const std::string& key, const JsonValue& value) {
    if (key == "method")
      method = value.string();
    else if (key == "model")
      result.model = value.string();
    else if (key == "num_speculative_tokens")
      result.tokens = value.integer(1, batch::kMaxDrafts);
    else if (key == "prompt_lookup_min")
      result.match = value.integer(1, batch::kLongestMatch);
    else if (key != "prompt_lookup_max")
      value.fail("is not supported: want method, model, num_speculative_tokens or prompt_lookup_min");
  });
  const bool has_model = !result.model.empty();
  if (!method.empty() && method != (has_model ? "draft_model" : "ngram"))
    config.fail(
        fmt::format("has the method \"{}\", want \"draft_model\" with a model, or \"ngram\" without one", method));
  if (!has_model && result.tokens == 0) config.fail("has no num_speculative_tokens, want 1 to 15");
  return result;
}

DecoderOptions ModelOptions::decoder(int64_t num_requests) const {
  DecoderOptions options;
  options.max_requests = max_batch > 0 ? max_batch : num_requests;
  options.max_rows = max_rows;
  options.max_seq_len = max_seq_len;
  options.page_size = page_size;
  options.max_pages = num_pages;
  options.kv_dtype = kv_dtype_of(kv_dtype);
  const Speculation drafts = speculation();
  options.draft_tokens = drafts.tokens;
  options.draft_match = drafts.match;
  options.quant_columns = quant_columns_of(quantization);
  options.target = target;
  return options;
}

engine::EngineOptions ModelOptions::engine(int64_t num_requests) const {
  engine::EngineOptions options;
  options.decoder = decoder(num_requests);
  options.draft_model = speculation().model;
  options.target = target;
  options.num_workers = workers();
  options.dummy_weights = dummy();
  if (batch_invariant && (prompt_rows.value_or(0) > 0 || std::ranges::any_of(regimes, std::identity())))
    throw UsageError{"--batch-invariant keeps one kernel: leave it out, or --regimes and --prompt-rows"};
  options.prompt_rows = batch_invariant ? 0 : prompt_rows;
  if (batch_invariant || !regimes.empty()) options.regimes = regimes;
  if (options.regimes == std::vector<int64_t>{0}) options.regimes->clear();
  return options;
}

int64_t context_for(int64_t positions, const ModelOptions& options, const ModelConfig& config) {
  const bool given = options.max_seq_len > 0;
  const int64_t most = given ? options.max_seq_len : config.longest_sequence();
  MEGALITH_CHECK(positions <= most, "the tests need {} positions, but a sequence may have {} ({})", positions, most,
                 given ? "--max-seq-len" : "as config.json says");
  const int64_t chunk = optimize::kSplitPositions;
  return given ? most : std::min((positions + chunk - 1) / chunk * chunk, most);
}

ModelGraph model_graph(const ModelOptions& options) {
  const std::string folder = options.folder();
  ModelConfig config = config_read(folder);
  DecoderOptions decoder = options.decoder(1);
  decoder.target = target_of(decoder.target);
  if (const std::string draft = options.speculation().model; !draft.empty())
    decoder.draft_model = read_draft_model(draft, folder);
  if (!options.dummy() && has_weights(folder))
    decoder.weight_dtypes = weight_dtypes(open_weights(folder, config), config.dtype);
  decoder = decoder.resolved(config);
  graph::Graph graph = build_decoder(config, decoder);
  return {std::move(config), std::move(decoder), std::move(graph)};
}

}  // namespace megalith::tools
