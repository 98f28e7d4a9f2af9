// TextGenerator: a model and its tokenizer, and the text they go on with from token ids.
//
// It remembers the keys and values of the last run, so that a prompt that begins alike (the next
// turn of a conversation) costs only what is new in it. Owned by one verb; one thread. Torch
// exceptions pass through.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/generation/sampler.h"
#include "trainer/model/inference.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

struct GenerationSettings {
  SamplingOptions sampling;
  std::int64_t max_new_tokens = 256;
  std::vector<std::string> stops;  // the text ends before the first of them
  // The text goes on from the prompt's: with its blank where a word follows. Else it begins anew,
  // as an assistant's turn does.
  bool continues_prompt = true;
  // They end the text as the model's own ends of text do.
  std::vector<std::int32_t> end_ids = {};
};

enum class FinishReason {
  kEndOfText,    // the model ended it, or its turn
  kStop,         // one of the stops came
  kLength,       // max_new_tokens
  kContext,      // max_position_embeddings of the model
  kInterrupted,  // the sink said so
};
std::string_view FinishReasonName(FinishReason reason);  // "end_of_text"

struct Generated {
  std::string text;
  std::vector<std::int32_t> ids;  // without the end-of-text token
  FinishReason reason = FinishReason::kEndOfText;
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // of the prompt, known from the last run
  double prompt_seconds = 0;       // until the first token
  double seconds = 0;              // from then on
};

// Gets the text piece by piece, in whole characters; false ends it.
using TextSink = std::function<bool(std::string_view)>;

class TextGenerator {
 public:
  // auto (bf16 where the weights are, else fp32), float32 or bfloat16. `adapter`: as
  // InferenceModel::Load takes it.
  static Result<TextGenerator> Load(const std::string& model_dir, const std::string& type,
                                    const std::string& adapter = {});

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const ModelConfig& config() const { return model_.config(); }

  // kInvalidArgument: the prompt is empty, longer than the model's context, or holds an id that the
  // model lacks. kDataLoss: the model's logits are not numbers.
  Result<Generated> Run(const std::vector<std::int32_t>& prompt, const GenerationSettings& settings,
                        const TextSink& sink);
  // Goes on from each prompt, `batch` of them at once, so that the weights are read once for a
  // token of each. Prompt i draws with the seed sampling.seed + i. `on_done` gets the texts in the
  // order of the prompts; false ends it. Products of several rows are rounded otherwise than those
  // of one: of two tokens that are equally likely the other may come. kInvalidArgument, before
  // anything is generated, for a prompt that Run would refuse.
  Status RunAll(const std::vector<std::vector<std::int32_t>>& prompts,
                const GenerationSettings& settings, std::size_t batch,
                const std::function<bool(const Generated&)>& on_done);

 private:
  TextGenerator(Tokenizer tokenizer, InferenceModel model);
  Status CheckPrompt(const std::vector<std::int32_t>& prompt) const;
  // How many ids of the prompt the cache has seen from now on; fewer than there are.
  std::size_t Reuse(const std::vector<std::int32_t>& prompt);
  // [V] fp32: of what follows when `ids` have come.
  at::Tensor Next(const std::vector<std::int32_t>& ids);

  Tokenizer tokenizer_;
  InferenceModel model_;
  KvCache cache_;
  std::vector<std::int32_t> seen_;  // what the cache holds
};

}  // namespace muster
