#include "trainer/text/chat/special_tokens.h"

#include <filesystem>

#include "common/base/json.h"
#include "trainer/text/chat/json_file.h"

namespace muster {
namespace {

constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// A text, or an added token's object with the text as its content; anything else is none.
std::string TextOf(const nlohmann::ordered_json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("content") && json["content"].is_string())
    return json["content"].get<std::string>();
  return "";
}

}  // namespace

std::string SpecialTokens::Find(const std::string& name) const {
  for (const auto& [known, text] : texts)
    if (known == name) return text;
  return "";
}

Result<SpecialTokens> ReadSpecialTokens(const std::string& model_dir) {
  SpecialTokens tokens;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = model_dir + "/" + file;
    auto json = ReadJsonObject(path);
    if (!json.ok() && json.status().code() == StatusCode::kNotFound) continue;
    if (!json.ok()) return json.status();
    for (const char* name : kNames) {
      const auto found = json->find(name);
      if (found == json->end() || !tokens.Find(name).empty()) continue;
      if (std::string text = TextOf(*found); !text.empty())
        tokens.texts.emplace_back(name, std::move(text));
    }
  }
  return tokens;
}

}  // namespace muster
