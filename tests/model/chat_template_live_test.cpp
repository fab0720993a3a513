// Ten thousand random chat templates, here and in transformers, where python3 can import it: put a virtual environment that
// has transformers and jinja2 first in PATH. MEGALITH_TEMPLATE_SEED tries others than those of the last time.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "megalith/model/chat_template.h"
#include "model/scratch.h"

namespace megalith {
namespace {

using OrderedJson = nlohmann::ordered_json;

TEST(ChatTemplateLiveTest, EqualsTransformers) {
  if (system("python3 -c 'import jinja2, transformers' 2> /dev/null") != 0)
    GTEST_SKIP() << "[SKIP] python3 has no transformers and jinja2: pip install transformers jinja2";
  constexpr size_t kTemplates = 10'000;
  const char* seed = getenv("MEGALITH_TEMPLATE_SEED");
  const std::string command = fmt::format("python3 '{}/tools/random_templates.py' --count {} --seed {} 2> /dev/null",
                                          MEGALITH_SOURCE_DIR, kTemplates, seed ? atoi(seed) : 7);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  ASSERT_TRUE(pipe);
  char* line = nullptr;
  size_t capacity = 0, count = 0, different = 0;
  ASSERT_GT(getline(&line, &capacity, pipe.get()), 0);
  const OrderedJson given = OrderedJson::parse(line);
  const TemplateValue messages = TemplateValue::from_json(given["messages"].get<std::string>(), "messages");
  ChatOptions options;
  for (const auto& [key, value] : given["variables"].items())
    options.variables.emplace_back(key, TemplateValue::from_json(value.get<std::string>(), key));
  for (; getline(&line, &capacity, pipe.get()) > 0 && different < 20; ++count) {
    const OrderedJson row = OrderedJson::parse(line);
    const std::string source = row[0];
    OrderedJson text;  // null for an error, as there
    const std::string error = user_error([&] {
      std::string all;
      for (const TextSegment& segment :
           ChatTemplate::parse(source, "t", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}).render(messages, options))
        all += segment.text;
      text = all;
    });
    // There an address is printed, and may be upper-cased, cut or counted afterwards.
    if (error.find("Python shows its address") != std::string::npos) continue;
    EXPECT_EQ(text, row[1]) << source << "\n  error here: " << error;
    different += text != row[1];
  }
  free(line);
  EXPECT_EQ(count, kTemplates);
}

}  // namespace
}  // namespace megalith
