#include "trainer/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "common/base/files.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/tokenizer_json.h"
#include "trainer/tokenizer/utf8.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxTokenizerBytes = 256 << 20;

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts parts) : parts(std::move(parts)) { BuildTables(); }

  struct IdEntry {
    std::string token;  // as tokenizer.json spells it
    bool known = false;
    bool special = false;
  };

  TokenizerParts parts;
  AddedTokens raw_added;         // matched before normalization
  AddedTokens normalized_added;  // and after it
  std::vector<IdEntry> by_id;

  void BuildTables() {
    std::int32_t max_id = -1;
    for (const auto& [token, id] : parts.bpe.vocab()) max_id = std::max(max_id, id);
    for (const AddedToken& token : parts.added_tokens) max_id = std::max(max_id, token.id);
    by_id.resize(static_cast<std::size_t>(max_id + 1));
    for (const auto& [token, id] : parts.bpe.vocab())
      by_id[static_cast<std::size_t>(id)] = {token, true, false};
    for (AddedToken token : parts.added_tokens) {
      by_id[static_cast<std::size_t>(token.id)] = {token.content, true, token.special};
      if (token.normalized && parts.compose) token.content = ComposeUtf8(token.content);
      (token.normalized ? normalized_added : raw_added).Add(std::move(token));
    }
  }

  // Neither method changes what a text means; only the cache of `parts.bpe` grows.
  void EncodePlain(std::string_view text, std::vector<std::int32_t>* out) {
    parts.pre_tokenizer.Run(text, [&](std::string_view piece) { parts.bpe.Encode(piece, out); });
  }

  void EncodeNormalized(std::string_view text, bool parse_added, std::vector<std::int32_t>* out) {
    std::string composed;
    if (parts.compose) {
      composed = ComposeUtf8(text);
      text = composed;
    }
    if (!parse_added) return EncodePlain(text, out);
    normalized_added.Split(
        text, [&](std::string_view piece) { EncodePlain(piece, out); },
        [&](const AddedToken& token) { out->push_back(token.id); });
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Parse(std::string_view json, const std::string& origin) {
  MUSTER_ASSIGN_OR_RETURN(TokenizerParts parts, ParseTokenizerJson(json, origin));
  return Tokenizer(std::make_unique<Impl>(std::move(parts)));
}

Result<Tokenizer> Tokenizer::Load(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    const bool sentencepiece = std::filesystem::exists(dir + "/tokenizer.model", error);
    return NotFound("there is no " + path +
                    (sentencepiece
                         ? ", only a SentencePiece tokenizer.model, which is not supported"
                         : "; a model directory holds config.json, tokenizer.json and "
                           "model.safetensors (or its shards)"));
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxTokenizerBytes));
  return Parse(json, path);
}

std::vector<std::int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const std::string valid = ReplaceInvalidUtf8(text);
  const TokenizerParts& parts = impl_->parts;
  std::vector<std::int32_t> ids;
  if (options.add_special_tokens) ids = parts.prefix_ids;
  if (options.parse_added_tokens) {
    impl_->raw_added.Split(
        valid, [&](std::string_view piece) { impl_->EncodeNormalized(piece, true, &ids); },
        [&](const AddedToken& token) { ids.push_back(token.id); });
  } else {
    impl_->EncodeNormalized(valid, false, &ids);
  }
  if (options.add_special_tokens)
    ids.insert(ids.end(), parts.suffix_ids.begin(), parts.suffix_ids.end());
  return ids;
}

std::string Tokenizer::Decode(const std::vector<std::int32_t>& ids, DecodeOptions options) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const Impl::IdEntry& entry = impl_->by_id[static_cast<std::size_t>(id)];
    if (entry.special && options.skip_special_tokens) continue;
    bytes += UnspellBytes(entry.token);
  }
  return ReplaceInvalidUtf8(bytes);
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

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(impl_->by_id.size());
}

}  // namespace muster
