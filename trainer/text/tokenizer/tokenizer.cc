#include "trainer/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "common/base/files.h"
#include "trainer/text/tokenizer/sentencepiece_model.h"
#include "trainer/text/tokenizer/tokenizer_json.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

bool IsSpaceAlone(const AddedToken& token) {
  const std::string& text = token.content;
  return !token.special && !text.empty() && SpacesAtBegin(text) == text.size();
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts parts) : parts(std::move(parts)) { BuildTables(); }

  struct IdEntry {
    std::string token;  // as the file spells it
    bool known = false;
    bool special = false;
    bool added = false;
    bool space = false;  // an added one that is white space alone
    bool lstrip = false;
    bool rstrip = false;
  };

  // Those that are matched before a text is normalized, and those after it.
  struct AddedSets {
    AddedTokens raw;
    AddedTokens normalized;
  };

  TokenizerParts parts;
  AddedSets added;
  AddedSets added_spaces;  // those of them that are white space alone
  std::vector<IdEntry> by_id;
  std::unordered_map<std::int32_t, std::string> normalized_texts;  // of added tokens

  void BuildTables() {
    std::int32_t max_id = -1;
    for (const auto& [token, id] : parts.bpe.vocab()) max_id = std::max(max_id, id);
    for (const AddedToken& token : parts.added_tokens) max_id = std::max(max_id, token.id);
    by_id.resize(static_cast<std::size_t>(max_id + 1));
    for (const auto& [token, id] : parts.bpe.vocab())
      by_id[static_cast<std::size_t>(id)] = {token, true, false, false};
    // Where two are the same text once normalized, a special one counts.
    for (const bool special : {true, false})
      for (const AddedToken& token : parts.added_tokens)
        if (token.special == special) AddToken(token);
  }

  void AddToken(AddedToken token) {
    const bool space = IsSpaceAlone(token);
    by_id[static_cast<std::size_t>(token.id)] = {token.content, true,         token.special, true,
                                                 space,         token.lstrip, token.rstrip};
    if (token.normalized && !token.as_is) {
      token.content = parts.normalizer.Run(token.content);
      normalized_texts[token.id] = token.content;
    }
    if (space) SetOf(added_spaces, token).Add(token);
    SetOf(added, token).Add(std::move(token));
  }

  static AddedTokens& SetOf(AddedSets& sets, const AddedToken& token) {
    return token.normalized ? sets.normalized : sets.raw;
  }

  // `place` is that of the text's beginning in the whole input.
  void EncodePlain(std::string_view text, TextPlace place, BpeCache* cache,
                   std::vector<std::int32_t>* out) const {
    parts.pre_tokenizer.Run(text, place,
                            [&](std::string_view piece) { parts.bpe.Encode(piece, cache, out); });
  }

  void EncodeNormalized(std::string_view text, TextPlace place, const AddedTokens& normalized_added,
                        BpeCache* cache, std::vector<std::int32_t>* out) const {
    std::string normalized;
    if (!parts.normalizer.empty()) {
      normalized = parts.normalizer.Run(text, place);
      text = normalized;
    }
    normalized_added.Split(
        text,
        [&](std::string_view piece) {
          EncodePlain(piece, PlaceOfPart(piece, text, place), cache, out);
        },
        [&](const AddedToken& token) { out->push_back(token.id); });
  }
};

// What was encoded before.
struct Tokenizer::Cache {
  BpeCache pieces;
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl)
    : impl_(std::move(impl)), cache_(std::make_unique<Cache>()) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Parse(std::string_view json, const std::string& origin) {
  MUSTER_ASSIGN_OR_RETURN(TokenizerParts parts, ParseTokenizerJson(json, origin));
  return Tokenizer(std::make_shared<const Impl>(std::move(parts)));
}

Result<Tokenizer> Tokenizer::Load(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    MUSTER_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxTokenizerBytes));
    return Parse(json, path);
  }
  if (std::filesystem::exists(dir + "/tokenizer.model", error)) {
    MUSTER_ASSIGN_OR_RETURN(TokenizerParts parts, LoadSentencePiece(dir));
    return Tokenizer(std::make_shared<const Impl>(std::move(parts)));
  }
  return NotFound("there is no " + path +
                  " and no tokenizer.model; a model directory holds config.json, tokenizer.json "
                  "and model.safetensors (or its shards)");
}

Tokenizer Tokenizer::Share() const { return Tokenizer(impl_); }

std::vector<std::int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const std::string valid = ReplaceInvalidUtf8(text);
  const TokenizerParts& parts = impl_->parts;
  const TextPlace place = options.continues_text ? TextPlace::kContinued : TextPlace::kStart;
  std::vector<std::int32_t> ids;
  if (options.add_special_tokens) ids = parts.prefix_ids;
  const Impl::AddedSets& parsed = options.parse_added_tokens ? impl_->added : impl_->added_spaces;
  parsed.raw.Split(
      valid,
      [&](std::string_view piece) {
        impl_->EncodeNormalized(piece, PlaceOfPart(piece, valid, place), parsed.normalized,
                                &cache_->pieces, &ids);
      },
      [&](const AddedToken& token) { ids.push_back(token.id); });
  if (options.add_special_tokens)
    ids.insert(ids.end(), parts.suffix_ids.begin(), parts.suffix_ids.end());
  return ids;
}

std::string Tokenizer::Decode(const std::vector<std::int32_t>& ids, DecodeOptions options) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const Impl::IdEntry& entry = impl_->by_id[static_cast<std::size_t>(id)];
    if (!entry.known || (entry.special && options.skip_special_tokens)) continue;
    // A decoder takes back what a normalizer has done, to these tokens as well.
    const auto normalized = impl_->normalized_texts.find(id);
    tokens.push_back(normalized == impl_->normalized_texts.end() ? entry.token
                                                                 : normalized->second);
  }
  return impl_->parts.decoder.Run(std::move(tokens));
}

std::optional<std::int32_t> Tokenizer::TokenId(std::string_view token) const {
  for (const AddedToken& added : impl_->parts.added_tokens)
    if (added.content == token) return added.id;
  const auto it = impl_->parts.bpe.vocab().find(token);
  if (it == impl_->parts.bpe.vocab().end()) return std::nullopt;
  return it->second;
}

std::string Tokenizer::TokenText(std::int32_t id) const {
  return id >= 0 && id < vocab_size() ? impl_->by_id[static_cast<std::size_t>(id)].token
                                      : std::string();
}

const std::vector<std::int32_t>& Tokenizer::Prefix() const { return impl_->parts.prefix_ids; }
const std::vector<std::int32_t>& Tokenizer::Suffix() const { return impl_->parts.suffix_ids; }

bool Tokenizer::IsAddedToken(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->by_id[static_cast<std::size_t>(id)].added;
}

bool Tokenizer::TakesSpaceBefore(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->by_id[static_cast<std::size_t>(id)].lstrip;
}

bool Tokenizer::TakesSpaceBehind(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->by_id[static_cast<std::size_t>(id)].rstrip;
}

bool Tokenizer::IsAddedSpace(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->by_id[static_cast<std::size_t>(id)].space;
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(impl_->by_id.size());
}

}  // namespace muster
