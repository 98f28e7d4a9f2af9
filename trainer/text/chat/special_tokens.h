// SpecialTokens: the texts of a model's special tokens, which its chat template finds by name.
//
// Value type. Reading blocks on the file system; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct SpecialTokens {
  // "bos_token" and its text, and so on; only those that the model has.
  std::vector<std::pair<std::string, std::string>> texts = {};

  // Empty: the model has none of that name.
  std::string Find(const std::string& name) const;
};

// From tokenizer_config.json, and special_tokens_map.json for what that does not say. Neither need
// be there.
Result<SpecialTokens> ReadSpecialTokens(const std::string& model_dir);

}  // namespace muster
