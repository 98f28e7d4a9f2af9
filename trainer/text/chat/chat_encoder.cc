#include "trainer/text/chat/chat_encoder.h"

#include <utility>

#include "trainer/text/tokenizer/utf8.h"

namespace muster {

void ChatEncoder::Add(const ChatSegment& segment) {
  if (segment.trained != trained_) EndPlain();
  trained_ = segment.trained;
  if (!segment.markup) {
    plain_ += segment.text;
    return;
  }
  for (const Part& part : PartsOf(segment.text)) {
    plain_ += part.text;
    if (part.ids.empty()) continue;
    DropSpaceBefore(part.ids.front(), &plain_);
    EndPlain();
    Push(part.ids);
  }
}

EncodedChat ChatEncoder::Take() {
  EndPlain();
  return std::move(chat_);
}

// Added tokens by themselves, and what stands between them. Where that does not give the ids that
// the markup has by itself, it is one part with these.
std::vector<ChatEncoder::Part> ChatEncoder::PartsOf(const std::string& markup) const {
  const std::vector<std::int32_t> ids = tokenizer_.Encode(markup);
  std::vector<Part> parts;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    if (!tokenizer_.IsAddedToken(id) || tokenizer_.IsAddedSpace(id)) continue;
    const std::string token = tokenizer_.TokenText(id);
    const std::size_t found = markup.find(token, at);
    if (found == std::string::npos) return {{.text = "", .ids = ids}};
    AddText(markup.substr(at, found - at), id, &parts);
    parts.push_back({.text = "", .ids = {id}});
    at = found + token.size();
  }
  AddText(markup.substr(at), std::nullopt, &parts);
  if (!Gives(parts, ids)) return {{.text = "", .ids = ids}};
  return parts;
}

// Text between what the parts end with and an added token, or the end.
void ChatEncoder::AddText(std::string text, std::optional<std::int32_t> next,
                          std::vector<Part>* parts) const {
  if (!parts->empty()) DropSpaceBehind(parts->back().ids.front(), &text);
  if (next) DropSpaceBefore(*next, &text);
  if (!text.empty()) parts->push_back({.text = std::move(text)});
}

void ChatEncoder::DropSpaceBefore(std::int32_t added_token, std::string* text) const {
  if (tokenizer_.TakesSpaceBefore(added_token)) text->resize(text->size() - SpacesAtEnd(*text));
}

void ChatEncoder::DropSpaceBehind(std::int32_t added_token, std::string* text) const {
  if (tokenizer_.TakesSpaceBehind(added_token)) text->erase(0, SpacesAtBegin(*text));
}

// Whether the parts, each encoded by itself, are the ids of the whole.
bool ChatEncoder::Gives(const std::vector<Part>& parts,
                        const std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> all;
  for (const Part& part : parts) {
    const auto own = part.ids.empty() ? EncodeBehind(all, part.text) : part.ids;
    all.insert(all.end(), own.begin(), own.end());
  }
  return all == ids;
}

std::vector<std::int32_t> ChatEncoder::EncodeBehind(const std::vector<std::int32_t>& ids,
                                                    const std::string& text) const {
  const bool continues =
      !ids.empty() && (!tokenizer_.IsAddedToken(ids.back()) || GoesOnBehind(ids.back()));
  return tokenizer_.Encode(text, {.parse_added_tokens = false, .continues_text = continues});
}

// Whether text behind the token is encoded as text that goes on; some tokenizers put a blank in
// front of it as at the beginning, and others do not.
bool ChatEncoder::GoesOnBehind(std::int32_t added_token) const {
  const auto known = goes_on_.find(added_token);
  if (known != goes_on_.end()) return known->second;
  std::vector<std::int32_t> behind = tokenizer_.Encode(tokenizer_.TokenText(added_token) + ".");
  const bool alone = !behind.empty() && behind.front() == added_token;
  if (alone) behind.erase(behind.begin());
  const bool goes_on = alone && behind != tokenizer_.Encode(".", {.parse_added_tokens = false});
  goes_on_.emplace(added_token, goes_on);
  return goes_on;
}

void ChatEncoder::EndPlain() {
  if (!chat_.ids.empty()) DropSpaceBehind(chat_.ids.back(), &plain_);
  if (plain_.empty()) return;
  Push(EncodeBehind(chat_.ids, plain_));
  plain_.clear();
}

void ChatEncoder::Push(const std::vector<std::int32_t>& ids) {
  chat_.ids.insert(chat_.ids.end(), ids.begin(), ids.end());
  chat_.trained.insert(chat_.trained.end(), ids.size(), trained_ ? 1 : 0);
}

}  // namespace muster
