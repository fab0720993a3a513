#include "megalith/serve/answer_schemas.h"

namespace megalith::serve {

const std::vector<AnswerSchema>& answer_schemas() {
  static const std::vector<AnswerSchema> table = {
      {"Error", R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",)"
                R"("required":["message","type","param","code"],"properties":{"message":{"type":"string"},)"
                R"("type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":"integer"}}}}})"},
      {"Message", R"({"type":"object","required":["role"],"properties":{)"
                  R"("role":{"enum":["system","developer","user","assistant","tool"]},)"
                  R"("content":{"anyOf":[{"type":["string","null"]},{"type":"array","items":{"type":"object",)"
                  R"("required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]},)"
                  R"("name":{"type":["string","null"]},"reasoning_content":{"type":["string","null"]},)"
                  R"("tool_calls":{"type":["array","null"],"items":{"$ref":"#/components/schemas/ToolCall"}},)"
                  R"("tool_call_id":{"type":["string","null"]}},)"
                  R"("anyOf":[{"properties":{"role":{"const":"assistant"}}},)"
                  R"({"required":["content"],"properties":{"content":{"not":{"type":"null"}}}}]})"},
      {"ToolCall", R"({"type":"object","required":["function"],"properties":{"id":{"type":["string","null"]},)"
                   R"("type":{"const":"function"},"function":{"type":"object","required":["name"],"properties":)"
                   R"({"name":{"type":"string"},"arguments":{"type":["string","null"]}}}}})"},
      {"Usage", R"({"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"],"properties":)"
                R"({"prompt_tokens":{"type":"integer","minimum":1},"completion_tokens":{"type":"integer","minimum":0},)"
                R"("total_tokens":{"type":"integer"},"prompt_tokens_details":{"type":"object","properties":)"
                R"({"cached_tokens":{"type":"integer","minimum":0}}},"completion_tokens_details":{"type":"object",)"
                R"("properties":{"reasoning_tokens":{"type":"integer"}}}}})"},
      {"TokenLogprob", R"({"type":"object","required":["token","logprob","bytes"],"properties":{)"
                       R"("token":{"type":"string"},"logprob":{"type":"number","maximum":0},)"
                       R"("bytes":{"type":"array","items":{"type":"integer","minimum":0,"maximum":255}},)"
                       R"("top_logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}})"},
      {"ChatCompletion",
       R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{)"
       R"("id":{"type":"string"},"object":{"const":"chat.completion"},"created":{"type":"integer"},)"
       R"("model":{"type":"string"},"system_fingerprint":{"type":"string"},)"
       R"("usage":{"$ref":"#/components/schemas/Usage"},"timings":{"$ref":"#/components/schemas/Timings"},"choices":{"type":"array","minItems":1,"items":)"
       R"({"type":"object","required":["index","message","logprobs","finish_reason"],"properties":{)"
       R"("index":{"type":"integer"},"finish_reason":{"enum":["stop","length","tool_calls"]},)"
       R"("stop_reason":{"type":["integer","null"]},"logprobs":{"type":["object","null"],"properties":)"
       R"({"content":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}},)"
       R"("message":{"type":"object","required":["role","content"],"properties":{"role":{"const":"assistant"},)"
       R"("content":{"type":["string","null"]},"reasoning_content":{"type":"string"},"reasoning":{"type":"string"},)"
       R"("tool_calls":{"type":"array","items":{"$ref":"#/components/schemas/ToolCall"}}}}}}}}})"},
      {"Completion",
       R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{)"
       R"("id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},)"
       R"("model":{"type":"string"},"system_fingerprint":{"type":"string"},)"
       R"("usage":{"$ref":"#/components/schemas/Usage"},"timings":{"$ref":"#/components/schemas/Timings"},"choices":{"type":"array","minItems":1,"items":)"
       R"({"type":"object","required":["index","text","logprobs","finish_reason"],"properties":{)"
       R"("index":{"type":"integer"},"text":{"type":"string"},"finish_reason":{"enum":["stop","length"]},)"
       R"("stop_reason":{"type":["integer","null"]},"logprobs":{"type":["object","null"],"required":)"
       R"(["tokens","token_logprobs","top_logprobs","text_offset"],"properties":{)"
       R"("tokens":{"type":"array","items":{"type":"string"}},)"
       R"("token_logprobs":{"type":"array","items":{"type":["number","null"],"maximum":0}},)"
       R"("top_logprobs":{"type":["array","null"],"items":{"type":["object","null"]}},)"
       R"("text_offset":{"type":"array","items":{"type":"integer"}}}}}}}}})"},
      {"Response",
       R"({"type":"object","required":["id","object","created_at","status","model","output","usage"],"properties":{)"
       R"("id":{"type":"string"},"object":{"const":"response"},"created_at":{"type":"integer"},)"
       R"("status":{"enum":["completed","incomplete"]},"model":{"type":"string"},"output":{"type":"array","items":)"
       R"({"type":"object","required":["type","id","status"],"properties":)"
       R"({"type":{"enum":["message","reasoning","function_call"]}}}},"usage":{"type":"object","required":)"
       R"(["input_tokens","output_tokens","total_tokens"]}}})"},
      {"Timings", R"({"type":"object","required":["cache_n","prompt_n","prompt_ms","predicted_n","predicted_ms"],)"
                  R"("additionalProperties":{"type":"number","minimum":0}})"},
      {"LlamaAnswer",
       R"({"type":"object","required":["content","tokens","stop","stop_type","prompt","timings"],"properties":{)"
       R"("content":{"type":"string"},"tokens":{"type":"array","items":{"type":"integer"}},"stop":{"const":true},)"
       R"("model":{"type":"string"},"tokens_predicted":{"type":"integer"},"tokens_evaluated":{"type":"integer"},)"
       R"("generation_settings":{"type":"object"},"prompt":{"type":"string"},"has_new_line":{"type":"boolean"},)"
       R"("truncated":{"type":"boolean"},"stop_type":{"enum":["eos","limit","word"]},"stopping_word":)"
       R"({"type":"string"},"timings":{"$ref":"#/components/schemas/Timings"},"completion_probabilities":)"
       R"({"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}})"},
      {"LlamaCompletion", R"({"anyOf":[{"$ref":"#/components/schemas/LlamaAnswer"},)"
                          R"({"type":"array","items":{"$ref":"#/components/schemas/LlamaAnswer"}}]})"},
      {"InputTokens",
       R"({"type":"object","required":["input_tokens"],"properties":{"input_tokens":{"type":"integer"}}})"},
      {"Prompt", R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}})"},
      {"Props", R"({"type":"object","required":["default_generation_settings","total_slots","chat_template"]})"},
      {"Tokens",
       R"({"type":"object","required":["tokens","count","max_model_len"],"properties":{"tokens":{"type":"array",)"
       R"("items":{"anyOf":[{"type":"integer"},{"type":"object","required":["id","piece"],"properties":)"
       R"({"id":{"type":"integer"},"piece":{"type":["string","array"]}}}]}},"count":{"type":"integer"},)"
       R"("max_model_len":{"type":"integer"},"token_strs":{"type":"array","items":{"type":"string"}}}})"},
      {"Text", R"({"type":"object","required":["prompt","content"],"properties":{"prompt":{"type":"string"},)"
               R"("content":{"type":"string"}}})"},
      {"Model", R"({"type":"object","required":["id","object","created","owned_by","max_model_len"],"properties":)"
                R"({"id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"},)"
                R"("owned_by":{"type":"string"},"max_model_len":{"type":"integer"}}})"},
      {"Models", R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},)"
                 R"("data":{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Model"}}}})"},
      {"Health", R"({"type":"object","required":["status"],"properties":{"status":{"const":"ok"}}})"},
      {"Version", R"({"type":"object","required":["version"],"properties":{"version":{"type":"string"}}})"},
      {"Load", R"({"type":"object","required":["server_load"],"properties":{"server_load":{"type":"integer"}}})"},
      {"Slots", R"({"type":"array","items":{"type":"object","required":["id","n_ctx","is_processing"],"properties":)"
                R"({"id":{"type":"integer"},"n_ctx":{"type":"integer"},"is_processing":{"type":"boolean"}}}})"},
      {"OpenApi", R"({"type":"object","required":["openapi","info","paths"]})"},
  };
  return table;
}

}  // namespace megalith::serve
