#include "trainer/data/row_encoder.h"

#include <algorithm>
#include <span>

namespace muster {

RowEncoder::RowEncoder(const Tokenizer& tokenizer, const TextOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      chat_template_(ChooseChatTemplate(options.chat_template, options.model_dir, tokenizer)),
      chat_now_(NoonOf(options.chat_date)) {}

Status RowEncoder::Encode(std::string_view text, RowPlace place, EncodedRows* rows) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<RowSample> samples,
                          ParseRow(text, options_.text_field));
  for (const RowSample& sample : samples) {
    words_.clear();
    MUSTER_RETURN_IF_ERROR(EncodeSample(sample));
    MUSTER_RETURN_IF_ERROR(CheckVocabulary());
    AddParts(options_.split_text && sample.kind == RowSample::Kind::kText, place, rows);
  }
  return OkStatus();
}

Status RowEncoder::EncodeSample(const RowSample& sample) {
  const bool has_template = chat_template_.status().code() != StatusCode::kNotFound;
  if (sample.kind == RowSample::Kind::kChat)
    return EncodeTurns({.messages = sample.messages, .tools = sample.tools});
  if (sample.kind == RowSample::Kind::kAnswer && has_template)
    return EncodeTurns({.messages = {{"user", sample.user}, {"assistant", sample.answer}}});
  Append(tokenizer_.Prefix(), false);
  if (sample.kind == RowSample::Kind::kAnswer) {
    Append(tokenizer_.Encode(sample.prompt), options_.train_on_all);
    Append(tokenizer_.Encode(sample.answer, {.continues_text = EndsInText()}), true);
  } else {
    Append(tokenizer_.Encode(sample.text), true);
  }
  AppendEnd();
  return OkStatus();
}

bool RowEncoder::EndsInText() const {
  return !words_.empty() &&
         !tokenizer_.IsAddedToken(static_cast<std::int32_t>(words_.back() & ~kTrainedBit));
}

Status RowEncoder::EncodeTurns(const Conversation& conversation) {
  if (!chat_template_.ok()) return chat_template_.status();
  MUSTER_ASSIGN_OR_RETURN(const EncodedChat chat, EncodeChat(*chat_template_, conversation,
                                                             tokenizer_, {.now = chat_now_}));
  for (std::size_t i = 0; i < chat.ids.size(); ++i)
    words_.push_back(static_cast<std::uint32_t>(chat.ids[i]) |
                     (options_.train_on_all || chat.trained[i] != 0 ? kTrainedBit : 0));
  return OkStatus();
}

// The end-of-text id, once: the tokenizer's own template may have put it there already.
void RowEncoder::AppendEnd() {
  if (!tokenizer_.Suffix().empty())
    Append(tokenizer_.Suffix(), true);
  else if (options_.eos_token_id)
    Append({*options_.eos_token_id}, true);
}

void RowEncoder::Append(const std::vector<std::int32_t>& ids, bool trained) {
  for (const std::int32_t id : ids)
    words_.push_back(static_cast<std::uint32_t>(id) | (trained ? kTrainedBit : 0));
}

Status RowEncoder::CheckVocabulary() const {
  const auto beyond = std::find_if(words_.begin(), words_.end(), [this](std::uint32_t word) {
    return static_cast<std::int64_t>(word & ~kTrainedBit) >= options_.vocab_size;
  });
  if (beyond == words_.end()) return OkStatus();
  const auto id = static_cast<std::int32_t>(*beyond & ~kTrainedBit);
  return InvalidArgument(
      "holds token " + std::to_string(id) + " (" + tokenizer_.TokenText(id) +
      "), but the model's vocab_size is " + std::to_string(options_.vocab_size) +
      "; if the tokenizer belongs to this model, train.model.add_tokens: [] gives it rows for "
      "all ids");
}

void RowEncoder::AddParts(bool split, RowPlace place, EncodedRows* rows) const {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(options_.max_seq_len, 0));
  const std::span<const std::uint32_t> all = words_;
  if (all.size() <= most) return rows->Add(all, place);
  if (!split) {
    ++rows->stats.truncated;
    return rows->Add(all.first(most), place);
  }
  ++rows->stats.split;
  // A single token that is left over has nothing to be predicted from.
  for (std::size_t at = 0; at + 1 < all.size(); at += most)
    rows->Add(all.subspan(at, std::min(most, all.size() - at)), place);
}

}  // namespace muster
