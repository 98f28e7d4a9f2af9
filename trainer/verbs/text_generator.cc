#include "trainer/verbs/text_generator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "trainer/generation/stop_finder.h"
#include "trainer/generation/text_stream.h"
#include "trainer/model/families/read_config.h"

namespace muster {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<at::ScalarType> ChooseType(const std::string& name, const ModelConfig& config) {
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name != "auto") {
    return InvalidArgument("there is no type " + name + "; there are auto, float32 and bfloat16");
  }
  return config.torch_dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

bool Holds(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The text of one run as its tokens come.
class Output {
 public:
  Output(const Tokenizer& tokenizer, const std::vector<std::int32_t>& before,
         std::vector<std::string> stops, const TextSink& sink)
      : stream_(tokenizer, before), stop_(std::move(stops)), sink_(sink) {}

  // Why the text ends with this token; none: it does not.
  std::optional<FinishReason> Add(std::int32_t id) {
    Show(stop_.Add(stream_.Add(id)));
    if (stop_.stopped()) return FinishReason::kStop;
    if (!wanted_) return FinishReason::kInterrupted;
    return {};
  }
  // What was held back, where nothing but the number of tokens ended the text.
  void Flush() {
    Show(stop_.Add(stream_.Rest()));
    if (!stop_.stopped()) Show(stop_.Rest());
  }
  const std::string& text() const { return text_; }

 private:
  void Show(const std::string& piece) {
    text_ += piece;
    if (!piece.empty()) wanted_ = sink_(piece);
  }

  TextStream stream_;
  StopFinder stop_;
  const TextSink& sink_;
  std::string text_;
  bool wanted_ = true;
};

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfText: return "end_of_text";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kInterrupted: return "interrupted";
  }
  return "";
}

TextGenerator::TextGenerator(Tokenizer tokenizer, InferenceModel model)
    : tokenizer_(std::move(tokenizer)), model_(std::move(model)), cache_(model_.config()) {}

Result<TextGenerator> TextGenerator::Load(const std::string& model_dir, const std::string& type,
                                          const std::string& adapter) {
  MUSTER_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(model_dir));
  MUSTER_ASSIGN_OR_RETURN(const at::ScalarType chosen, ChooseType(type, config));
  MUSTER_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(model_dir));
  MUSTER_ASSIGN_OR_RETURN(InferenceModel model, InferenceModel::Load(model_dir, chosen, adapter));
  return TextGenerator(std::move(tokenizer), std::move(model));
}

Status TextGenerator::CheckPrompt(const std::vector<std::int32_t>& prompt) const {
  if (prompt.empty()) {
    return InvalidArgument("the prompt is empty; give the model at least one token to go on from");
  }
  for (const std::int32_t id : prompt) {
    if (id >= config().vocab_size) {
      return InvalidArgument("the prompt has token id " + std::to_string(id) +
                             ", outside the model's vocabulary of " +
                             std::to_string(config().vocab_size));
    }
  }
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length > config().max_position_embeddings) {
    return InvalidArgument("the prompt has " + std::to_string(length) +
                           " tokens, and the model's context (max_position_embeddings) is " +
                           std::to_string(config().max_position_embeddings) + "; shorten it");
  }
  return OkStatus();
}

std::size_t TextGenerator::Reuse(const std::vector<std::int32_t>& prompt) {
  const auto [end, unused] =
      std::mismatch(prompt.begin(), prompt.end() - 1, seen_.begin(), seen_.end());
  auto common = static_cast<std::size_t>(end - prompt.begin());
  if (!cache_.Truncate(static_cast<std::int64_t>(common))) {
    cache_ = KvCache(config());
    common = 0;
  }
  seen_.resize(common);
  return common;
}

Result<std::int32_t> TextGenerator::Next(const std::vector<std::int32_t>& ids, Sampler& sampler) {
  const at::Tensor input = at::tensor(ids, at::kLong).unsqueeze(0);
  const at::Tensor logits = model_.LastLogits(input, cache_).contiguous();
  seen_.insert(seen_.end(), ids.begin(), ids.end());
  // Rows that pad the embedding have no token to show.
  const auto drawable = static_cast<std::size_t>(
      std::min<std::int64_t>(config().vocab_size, tokenizer_.vocab_size()));
  const std::span<const float> values(logits.const_data_ptr<float>(), drawable);
  if (!CanBeDrawnFrom(values)) {
    return DataLoss(
        "the model's logits are not numbers (NaN or infinite): its weights are damaged, or too "
        "large for the type they are computed in");
  }
  return static_cast<std::int32_t>(sampler.Draw(values));
}

Result<Generated> TextGenerator::Run(const std::vector<std::int32_t>& prompt,
                                     const GenerationSettings& settings, const TextSink& sink) {
  MUSTER_RETURN_IF_ERROR(CheckPrompt(prompt));
  Sampler sampler(settings.sampling);
  Output output(tokenizer_, settings.continues_prompt ? prompt : std::vector<std::int32_t>(),
                settings.stops, sink);
  const std::size_t reused = Reuse(prompt);
  Generated made{.prompt_tokens = static_cast<std::int64_t>(prompt.size()),
                 .reused_tokens = static_cast<std::int64_t>(reused)};
  const std::int64_t room = config().max_position_embeddings - made.prompt_tokens + 1;
  const std::int64_t most = std::min(settings.max_new_tokens, room);
  std::optional<FinishReason> ended;
  std::vector<std::int32_t> next(prompt.begin() + static_cast<std::ptrdiff_t>(reused),
                                 prompt.end());
  auto start = std::chrono::steady_clock::now();
  while (!ended && static_cast<std::int64_t>(made.ids.size()) < most) {
    MUSTER_ASSIGN_OR_RETURN(const std::int32_t id, Next(next, sampler));
    if (made.ids.empty()) {
      made.prompt_seconds = SecondsSince(start);
      start = std::chrono::steady_clock::now();
    }
    if (Holds(config().eos_token_ids, id) || Holds(settings.end_ids, id)) {
      ended = FinishReason::kEndOfText;
    } else {
      made.ids.push_back(id);
      ended = output.Add(id);
      next.assign(1, id);
    }
  }
  made.seconds = SecondsSince(start);
  if (!ended)
    ended = most < settings.max_new_tokens ? FinishReason::kContext : FinishReason::kLength;
  if (*ended != FinishReason::kStop && *ended != FinishReason::kInterrupted) output.Flush();
  made.text = output.text();
  made.reason = *ended;
  return made;
}

}  // namespace muster
