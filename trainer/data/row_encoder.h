// RowEncoder: rows of text as token ids, each with what of it is trained on.
//
// A row is a JSON object in the first of these forms that it has (other keys are ignored):
//
//   the text field   trained on all of it, where the job names another one than "text"
//   messages         [{role, content}, ...]      trained on: what the assistant says; with tools
//   instruction      with instances [{input, output}, ...], each a row, or with input and output
//   prompt           with completion
//   text             trained on all of it
//
// Instruction and prompt rows become a user and an assistant turn where there is a chat template
// (ChooseChatTemplate), else "instruction\ninput\n" followed by the output, or the prompt followed
// by the completion, closed by the end-of-text id.
//
// Owned by one thread, as its tokenizer is. Errors say what is wrong with the row; the caller adds
// file and line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/encoded_rows.h"
#include "trainer/data/row_parser.h"
#include "trainer/text/chat/chat.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

// Whatever the ids of a row depend on beside its text and the tokenizer.
struct TextOptions {
  std::int64_t max_seq_len = 2048;
  std::string text_field = "text";     // the key of a row of plain text
  std::string chat_template = "auto";  // as ChooseChatTemplate takes it
  std::string chat_date = {};          // as NoonOf takes it
  std::string model_dir = {};          // where auto finds the model's own; empty: nowhere
  bool train_on_all = false;           // also on what is no answer
  // Rows of the model's embedding; a larger id is an error.
  std::int64_t vocab_size = 0;
  // The tokenizer's file where it is not the model directory's, for the cache's key.
  std::string tokenizer_json = {};
  // Ends rows that are no chat; none: they just end. ModelConfig::eos_token_ids.front().
  std::optional<std::int32_t> eos_token_id;
  // What of a row of plain text goes beyond max_seq_len becomes further rows instead of being cut,
  // but for a single token that is left over. Nothing predicts the first token of a further row.
  bool split_text = false;
};

class RowEncoder {
 public:
  // Both outlive it.
  RowEncoder(const Tokenizer& tokenizer, const TextOptions& options);

  // Adds the rows that `text` makes.
  Status Encode(std::string_view text, RowPlace place, EncodedRows* rows);

 private:
  Status EncodeSample(const RowSample& sample);
  Status EncodeTurns(const Conversation& conversation);
  // Whether what comes next goes on from text.
  bool EndsInText() const;
  void AppendEnd();
  void Append(const std::vector<std::int32_t>& ids, bool trained);
  Status CheckVocabulary() const;
  void AddParts(bool split, RowPlace place, EncodedRows* rows) const;

  const Tokenizer& tokenizer_;
  const TextOptions& options_;
  const Result<ChatTemplate> chat_template_;
  const std::optional<std::int64_t> chat_now_;
  std::vector<std::uint32_t> words_;  // of the sample at hand
};

}  // namespace muster
