// generation_config.json: where texts of a model end, for the programs that load it.
//
// transformers and vLLM stop at the eos_token_id of this file, and of config.json where a model has
// no such file. A base model that was trained on conversations has learnt to end its turns with
// another token than the one that ends its texts, and its files do not say so.
//
// Free functions; any thread; they block on the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/model_config.h"

namespace muster {

inline constexpr char kGenerationConfig[] = "generation_config.json";

// The file's text for a model whose texts end at each of `ids` as well: that of `model_dir`, else a
// new one, with `ids` behind the ids that end texts already, all else as it was. Empty: texts end
// there already. `config` is the directory's. kInvalidArgument: the file holds no JSON object.
Result<std::string> GenerationConfigWithEnds(const std::string& model_dir,
                                             const ModelConfig& config,
                                             const std::vector<std::int32_t>& ids);

}  // namespace muster
