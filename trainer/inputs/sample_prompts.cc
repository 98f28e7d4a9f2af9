#include "trainer/inputs/sample_prompts.h"

#include <algorithm>
#include <utility>

#include "trainer/generation/text_stream.h"
#include "trainer/inputs/vocab_growth.h"
#include "trainer/text/chat/chat.h"

namespace muster {
namespace {

Status CheckPrompt(const SamplePrompt& prompt, std::size_t number, const ModelConfig& config,
                   std::int64_t max_tokens) {
  const std::string name = "train.eval.samples: prompt " + std::to_string(number);
  const auto length = static_cast<std::int64_t>(prompt.ids.size());
  if (length == 0) return InvalidArgument(name + " has no token");
  if (length >= max_tokens) {
    return InvalidArgument(name + " has " + std::to_string(length) +
                           " tokens, which leaves no room within train.data.max_seq_len: " +
                           std::to_string(max_tokens) + "; shorten it");
  }
  for (const std::int32_t id : prompt.ids) {
    if (id < config.vocab_size) continue;
    return InvalidArgument(name + " has token id " + std::to_string(id) +
                           ", outside the model's vocabulary of " +
                           std::to_string(config.vocab_size));
  }
  return OkStatus();
}

}  // namespace

Result<SamplePrompts> SamplePrompts::Load(const std::vector<std::string>& texts,
                                          const ModelConfig& config, const Options& options) {
  MUSTER_ASSIGN_OR_RETURN(Tokenizer tokenizer,
                          LoadTokenizer(options.model_dir, options.tokenizer_json));
  SamplePrompts samples(std::move(tokenizer));
  const Result<ChatTemplate> chat =
      ChooseChatTemplate(options.chat_template, options.model_dir, samples.tokenizer_);
  if (!chat.ok() && chat.status().code() != StatusCode::kNotFound) return chat.status();
  samples.chats_ = chat.ok();
  samples.end_ids_.assign(config.eos_token_ids.begin(), config.eos_token_ids.end());
  // As `generate --chat` ends an answer, whatever the model's files name as the end of a text.
  if (chat.ok()) {
    for (const std::int32_t end : EndsOfTurn(*chat, samples.tokenizer_))
      samples.end_ids_.push_back(end);
  }
  samples.max_tokens_ = options.max_tokens;
  samples.words_ = std::min<std::int64_t>(config.vocab_size, samples.tokenizer_.vocab_size());
  for (const std::string& text : texts) {
    SamplePrompt prompt{.text = text, .ids = {}};
    if (chat.ok()) {
      MUSTER_ASSIGN_OR_RETURN(
          EncodedChat encoded,
          EncodeChat(*chat, {.messages = {{.role = "user", .content = text}}}, samples.tokenizer_,
                     {.prompt = GenerationPrompt::kAssistant, .now = NoonOf(options.chat_date)}));
      prompt.ids = std::move(encoded.ids);
    } else {
      prompt.ids = samples.tokenizer_.Encode(text, {.add_special_tokens = true});
    }
    samples.prompts_.push_back(std::move(prompt));
    MUSTER_RETURN_IF_ERROR(
        CheckPrompt(samples.prompts_.back(), samples.prompts_.size(), config, options.max_tokens));
  }
  return samples;
}

bool SamplePrompts::Ends(std::int32_t id) const {
  return std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end();
}

std::string SamplePrompts::TextOf(const SamplePrompt& prompt,
                                  const std::vector<std::int32_t>& ids) const {
  TextStream stream(tokenizer_, chats_ ? std::vector<std::int32_t>() : prompt.ids);
  std::string text;
  for (const std::int32_t id : ids) text += stream.Add(id);
  return text + stream.Rest();
}

}  // namespace muster
