// megalith logits: what a model makes of given tokens, for comparing it with another implementation.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "megalith/base/error.h"
#include "megalith/engine/engine.h"
#include "megalith/model/safetensors.h"
#include "tools/command.h"
#include "tools/model_options.h"
#include "tools/output_file.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

struct LogitsOptions {
  ModelOptions model;
  std::vector<int64_t> tokens;
  std::string output;
};

// One prompt after the other: each token's logits are those of the prompt that ends with it.
int run_logits(const LogitsOptions& options) {
  if (options.tokens.empty()) throw UsageError{"which tokens? give their ids with --tokens"};
  if (options.output.empty()) throw UsageError{"where to? give a file with -o"};
  const OutputFile output(options.output);
  engine::Request request{.max_new_tokens = 1, .ignore_stop_tokens = true};
  for (const int64_t token : options.tokens) request.prompt.push_back(static_cast<int>(token));
  // All of them, and before anything is compiled or worked through.
  engine::check_requests(options.model.folder(), options.model.engine(1), {request});
  engine::Engine engine(options.model.folder(), options.model.engine(1));
  const auto vocab = static_cast<size_t>(engine.config().vocab_size);
  std::vector<float> logits;
  request.prompt.clear();
  std::string trouble;
  for (const int64_t token : options.tokens) {
    request.prompt.push_back(static_cast<int>(token));
    engine.generate({request});
    logits.insert(logits.end(), engine.logits(), engine.logits() + vocab);
    if (trouble.empty() && !(trouble = engine.logits_trouble()).empty())
      trouble = fmt::format("from token {} of {} on, {}", request.prompt.size(), options.tokens.size(), trouble);
  }
  const WeightTensor tensor{.name = "logits",
                            .dtype = DType::f32,
                            .shape = {static_cast<int64_t>(options.tokens.size()), engine.config().vocab_size},
                            .bytes = std::as_bytes(std::span(logits))};
  output.write(safetensors_bytes({&tensor, 1}));
  output.tell(
      fmt::format("logits of {} in {}\n", plural(static_cast<int64_t>(options.tokens.size()), "token"), output.name()));
  MEGALITH_CHECK(trouble.empty(), "{}", trouble);  // behind the file: somebody may want to look at them
  return kExitOk;
}

Action declare_logits(Arguments& arguments) {
  auto options = std::make_shared<LogitsOptions>();
  arguments.group("Tokens");
  arguments.integers("--tokens", options->tokens, "their ids, separated by commas", 0, std::numeric_limits<int>::max());
  arguments.text("-o,--output", options->output, "FILE",
                 "a safetensors file with \"logits\", f32 [tokens, vocabulary]; - is stdout");
  options->model.declare(arguments, kDefaultContext, "one");
  return [options] { return run_logits(*options); };
}

}  // namespace

Command logits_command() {
  return {"logits", "the logits behind each of some tokens, in a file",
          "megalith logits models/storyteller --tokens 1,2,3 -o /tmp/logits.safetensors", declare_logits};
}

}  // namespace megalith::tools
