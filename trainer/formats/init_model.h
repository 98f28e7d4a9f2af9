// The files beside the weights of a Hugging Face model directory: written for a new model, copied
// for an exported one.
//
// Free functions; any thread; they block on the file system. Every file is replaced atomically.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/model_config.h"

namespace muster {

// Ids of a new model's tokenizer: the 256 bytes by value, then these.
inline constexpr std::int32_t kEndOfTextId = 256;  // <|endoftext|>
inline constexpr std::int32_t kImStartId = 257;    // <|im_start|>
inline constexpr std::int32_t kImEndId = 258;      // <|im_end|>
inline constexpr std::int64_t kByteVocabSize = 259;

// The chat template of a new model: ChatML, for those who load the model elsewhere.
inline constexpr char kChatmlJinja[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// "tiny" (4 layers, hidden 256, 3.2 M parameters) or "small" (8 layers, hidden 512, 32 M).
Result<ModelConfig> PresetConfig(const std::string& name);

// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
// special_tokens_map.json so that transformers loads them. The tokenizer is byte-level without
// merges and with the ChatML tokens, so the end-of-text ids of `config` are replaced by its own;
// vocab_size must be at least kByteVocabSize.
Status WriteModelFiles(const std::string& dir, const ModelConfig& config);

// Copies what there is of configuration, tokenizer and generation files, but no weights. Both are
// directories; config.json must be there. Returns the names copied.
Result<std::vector<std::string>> CopyModelFiles(const std::string& from, const std::string& to);

// Copies what there is of the tokenizer's files. `to` exists.
Status CopyTokenizerFiles(const std::string& from, const std::string& to);

}  // namespace muster
