#include "trainer/verbs/text_generator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <list>
#include <map>
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

// One text while it is generated: what is drawn, and whether that ends it.
class Continuation {
 public:
  // The tokenizer and the sink outlive it.
  Continuation(const Tokenizer& tokenizer, const ModelConfig& config,
               const std::vector<std::int32_t>& prompt, const GenerationSettings& settings,
               const TextSink& sink)
      : sampler_(settings.sampling),
        output_(tokenizer, settings.continues_prompt ? prompt : std::vector<std::int32_t>(),
                settings.stops, sink),
        // Rows that pad the embedding have no token to show.
        drawable_(std::min<std::int64_t>(config.vocab_size, tokenizer.vocab_size())),
        room_(config.ContextLength() - std::ssize(prompt) + 1),
        most_(settings.max_new_tokens),
        end_ids_(config.eos_token_ids) {
    end_ids_.insert(end_ids_.end(), settings.end_ids.begin(), settings.end_ids.end());
    made_.prompt_tokens = std::ssize(prompt);
  }

  // [V] fp32, of the token that comes next, which it draws.
  Status Take(const at::Tensor& given) {
    const at::Tensor logits = given.contiguous();
    const std::span<const float> values(logits.const_data_ptr<float>(),
                                        static_cast<std::size_t>(drawable_));
    if (!CanBeDrawnFrom(values)) {
      return DataLoss(
          "the model's logits are not numbers (NaN or infinite): its weights are damaged, or too "
          "large for the type they are computed in");
    }
    const auto id = static_cast<std::int32_t>(sampler_.Draw(values));
    if (made_.ids.empty()) {
      made_.prompt_seconds = SecondsSince(start_);
      start_ = std::chrono::steady_clock::now();
    }
    if (Holds(end_ids_, id)) {
      End(FinishReason::kEndOfText);
      return OkStatus();
    }
    made_.ids.push_back(id);
    if (const auto reason = output_.Add(id)) {
      End(*reason);
    } else if (std::ssize(made_.ids) == std::min(most_, room_)) {
      End(room_ < most_ ? FinishReason::kContext : FinishReason::kLength);
    }
    return OkStatus();
  }
  bool ended() const { return ended_; }
  std::int32_t last() const { return made_.ids.back(); }

  // Once it has ended.
  Generated Finish() {
    if (made_.reason != FinishReason::kStop && made_.reason != FinishReason::kInterrupted)
      output_.Flush();
    made_.text = output_.text();
    return std::move(made_);
  }

 private:
  void End(FinishReason reason) {
    ended_ = true;
    made_.reason = reason;
    made_.seconds = SecondsSince(start_);
  }

  Sampler sampler_;
  Output output_;
  std::int64_t drawable_;
  std::int64_t room_;  // of tokens in the model's context
  std::int64_t most_;
  std::vector<std::int32_t> end_ids_;
  Generated made_;
  bool ended_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
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
  if (length > config().ContextLength()) {
    return InvalidArgument("the prompt has " + std::to_string(length) +
                           " tokens, and the model's context (max_position_embeddings) is " +
                           std::to_string(config().ContextLength()) + "; shorten it");
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

at::Tensor TextGenerator::Next(const std::vector<std::int32_t>& ids) {
  const at::Tensor logits = model_.LastLogits(at::tensor(ids, at::kLong).unsqueeze(0), cache_);
  seen_.insert(seen_.end(), ids.begin(), ids.end());
  return logits[0];
}

Result<Generated> TextGenerator::Run(const std::vector<std::int32_t>& prompt,
                                     const GenerationSettings& settings, const TextSink& sink) {
  MUSTER_RETURN_IF_ERROR(CheckPrompt(prompt));
  Continuation text(tokenizer_, config(), prompt, settings, sink);
  const std::size_t reused = Reuse(prompt);
  MUSTER_RETURN_IF_ERROR(
      text.Take(Next({prompt.begin() + static_cast<std::ptrdiff_t>(reused), prompt.end()})));
  while (!text.ended()) MUSTER_RETURN_IF_ERROR(text.Take(Next({text.last()})));
  Generated made = text.Finish();
  made.reused_tokens = static_cast<std::int64_t>(reused);
  return made;
}

Status TextGenerator::RunAll(const std::vector<std::vector<std::int32_t>>& prompts,
                             const GenerationSettings& settings, std::size_t batch,
                             const std::function<bool(const Generated&)>& on_done) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckPrompt(prompts[i]).WithContext("prompt " + std::to_string(i + 1)));
  }
  struct Running {
    std::size_t number;
    KvCache cache;
    Continuation text;
  };
  const TextSink ignore = [](std::string_view) { return true; };
  std::list<Running> running;
  std::map<std::size_t, Generated> done;  // those that wait for earlier ones
  std::size_t begun = 0, shown = 0;
  while (shown < prompts.size()) {
    for (; begun < prompts.size() && running.size() < batch; ++begun) {
      GenerationSettings own = settings;
      own.sampling.seed += begun;
      running.push_back({begun, KvCache(config()),
                         Continuation(tokenizer_, config(), prompts[begun], own, ignore)});
      const at::Tensor ids = at::tensor(prompts[begun], at::kLong).unsqueeze(0);
      MUSTER_RETURN_IF_ERROR(
          running.back().text.Take(model_.LastLogits(ids, running.back().cache)[0]));
    }
    std::erase_if(running, [&](Running& each) {
      if (each.text.ended()) done.emplace(each.number, each.text.Finish());
      return each.text.ended();
    });
    for (; done.contains(shown); ++shown)
      if (!on_done(done.extract(shown).mapped())) return OkStatus();
    if (running.empty()) continue;
    std::vector<std::int64_t> ids;
    std::vector<KvCache*> caches;
    for (Running& each : running) {
      ids.push_back(each.text.last());
      caches.push_back(&each.cache);
    }
    const at::Tensor logits = model_.NextLogits(ids, caches);
    std::int64_t row = 0;
    for (Running& each : running) MUSTER_RETURN_IF_ERROR(each.text.Take(logits[row++]));
  }
  return OkStatus();
}

}  // namespace muster
