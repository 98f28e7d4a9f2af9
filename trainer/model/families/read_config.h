// Reading of a Hugging Face directory's config.json, of all families.
//
// What would change the numbers and is not implemented (other rope scaling, other biases, another
// activation) is refused by name, never ignored.
//
// Any thread; the readers block on the file system. Errors: kNotFound for a missing directory or
// file, kInvalidArgument for a value that is wrong, kUnimplemented for one that this version does
// not act on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "trainer/core/model_config.h"

namespace muster {

// Reads dir/config.json, and the end-of-text ids of dir/generation_config.json where it exists.
// Understands transformers 4 (rope_theta, torch_dtype) and 5 (rope_parameters, dtype).
Result<ModelConfig> ReadModelConfig(const std::string& dir);

// The same from a text; `origin` names it in errors.
Result<ModelConfig> ParseModelConfig(std::string_view json, const std::string& origin);

// A config.json with another vocab_size and everything else in its place.
Result<std::string> WithVocabSize(std::string_view json, std::int64_t vocab_size);

// A config.json, which is one, that says of the experts whether they are in MXFP4 (mxfp4.h).
std::string WithQuantization(std::string_view json, bool mxfp4);

}  // namespace muster
