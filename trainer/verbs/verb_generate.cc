#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "common/base/clock.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/chat/chat.h"
#include "trainer/model/inference.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

class Sampler {
 public:
  Sampler(double temperature, std::uint64_t seed) : temperature_(temperature), random_(seed) {}

  // logits: the `count` values of the last position; ids beyond them are never drawn.
  std::int64_t Draw(const float* logits, std::int64_t count) {
    const float* best = std::max_element(logits, logits + count);
    if (temperature_ <= 0) return best - logits;
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) total += Weight(logits[i], *best);
    double left = static_cast<double>(random_() >> 11) * 0x1.0p-53 * total;
    for (std::int64_t i = 0; i < count; ++i) {
      left -= Weight(logits[i], *best);
      if (left < 0) return i;
    }
    return best - logits;
  }

 private:
  double Weight(float logit, float best) const { return std::exp((logit - best) / temperature_); }

  double temperature_;
  std::mt19937_64 random_;
};

bool EndsText(const ModelConfig& config, std::int64_t id) {
  return std::find(config.eos_token_ids.begin(), config.eos_token_ids.end(), id) !=
         config.eos_token_ids.end();
}

std::vector<std::int32_t> Continue(InferenceModel& model, const Tokenizer& tokenizer,
                                   const std::vector<std::int32_t>& prompt,
                                   const GenerateOptions& options) {
  Sampler sampler(options.temperature, options.seed);
  // Rows that pad the embedding have no token to show.
  const std::int64_t drawable =
      std::min<std::int64_t>(model.config().vocab_size, tokenizer.vocab_size());
  std::vector<std::int64_t> ids(prompt.begin(), prompt.end());
  std::vector<std::int32_t> answer;
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const auto length = static_cast<std::int64_t>(ids.size());
    const at::Tensor hidden = model.Hidden(at::tensor(ids, at::kLong).unsqueeze(0));
    const at::Tensor logits =
        at::linear(hidden.narrow(1, length - 1, 1), model.head()).to(at::kFloat).contiguous();
    const std::int64_t id = sampler.Draw(logits.const_data_ptr<float>(), drawable);
    if (EndsText(model.config(), id)) break;
    ids.push_back(id);
    answer.push_back(static_cast<std::int32_t>(id));
  }
  return answer;
}

Result<std::string> Generate(const GenerateOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(options.model));
  MUSTER_ASSIGN_OR_RETURN(InferenceModel model, InferenceModel::Load(options.model, at::kFloat));
  std::vector<std::int32_t> prompt;
  if (options.chat) {
    MUSTER_ASSIGN_OR_RETURN(const ChatTemplate chat_template,
                            ChooseChatTemplate("auto", options.model, tokenizer));
    MUSTER_ASSIGN_OR_RETURN(
        EncodedChat chat,
        EncodeChat(
            chat_template, {.messages = {{"user", options.prompt}}}, tokenizer,
            {.prompt = GenerationPrompt::kAssistant, .now = SystemClock().UnixMillis() / 1000}));
    prompt = std::move(chat.ids);
  } else {
    prompt = tokenizer.Encode(options.prompt, {.add_special_tokens = true});
  }
  if (prompt.empty()) {
    return InvalidArgument("--prompt is empty; give the model at least one token to go on from");
  }
  for (const std::int32_t id : prompt) {
    if (id >= model.config().vocab_size) {
      return InvalidArgument("the prompt has token id " + std::to_string(id) +
                             ", outside the model's vocabulary of " +
                             std::to_string(model.config().vocab_size));
    }
  }
  return tokenizer.Decode(Continue(model, tokenizer, prompt, options),
                          {.skip_special_tokens = true});
}

}  // namespace

int RunGenerate(const GenerateOptions& options) {
  const Result<std::string> text = Generate(options);
  if (!text.ok()) {
    std::fprintf(stderr, "muster-trainer generate: %s\n", text.status().message().c_str());
    return kExitBadInput;
  }
  std::printf("%s\n", text->c_str());
  return kExitOk;
}

}  // namespace muster
