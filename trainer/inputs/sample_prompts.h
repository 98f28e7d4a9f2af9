// SamplePrompts: the prompts of train.eval.samples as token ids, and the text of what follows them.
//
// Where the job's rows have a chat template (train.data.chat_template) a prompt is what a user
// says, and the assistant answers; else the text goes on from it. Every rank has the same.
//
// Belongs to the inputs of a process; used by the trainer's thread. Load blocks on the file system.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "trainer/core/model_config.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

struct SamplePrompt {
  std::string text;
  std::vector<std::int32_t> ids;
};

class SamplePrompts {
 public:
  struct Options {
    std::string model_dir;               // of tokenizer and template
    std::string tokenizer_json = {};     // the tokenizer instead; empty: the directory's
    std::string chat_template = "auto";  // as ChooseChatTemplate takes it
    std::string chat_date = {};          // as NoonOf takes it
    std::int64_t max_tokens = 0;         // of a prompt and what follows it
  };
  // Errors are those of the tokenizer and the template; kInvalidArgument names a prompt that has no
  // token, leaves no room for another one, or has one that the model lacks.
  static Result<SamplePrompts> Load(const std::vector<std::string>& texts,
                                    const ModelConfig& config, const Options& options);

  const std::vector<SamplePrompt>& prompts() const { return prompts_; }
  std::int64_t max_tokens() const { return max_tokens_; }
  // Words of the vocabulary that have a text; at most the model's.
  std::int64_t words() const { return words_; }
  // Whether the id ends a text, or the assistant's turn.
  bool Ends(std::int32_t id) const;
  // The text of ids that follow that prompt.
  std::string TextOf(const SamplePrompt& prompt, const std::vector<std::int32_t>& ids) const;

 private:
  explicit SamplePrompts(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Tokenizer tokenizer_;
  std::vector<SamplePrompt> prompts_;
  std::vector<std::int32_t> end_ids_;
  std::int64_t max_tokens_ = 0;
  std::int64_t words_ = 0;
  bool chats_ = false;
};

}  // namespace muster
