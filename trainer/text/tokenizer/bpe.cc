#include "trainer/text/tokenizer/bpe.h"

#include <algorithm>

#include "trainer/text/tokenizer/byte_alphabet.h"
#include "trainer/text/tokenizer/byte_tokens.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

constexpr std::size_t kMaxCached = 1 << 16;
constexpr std::size_t kMaxCachedBytes = 128;  // of one piece

}  // namespace

Result<Bpe> Bpe::Create(TokenMap vocab, const std::vector<BpeMerge>& merges, BpeOptions options) {
  Bpe bpe;
  bpe.vocab_ = std::move(vocab);
  bpe.options_ = options;
  bpe.IndexSymbols();
  MUSTER_RETURN_IF_ERROR(bpe.AddMerges(merges));
  return bpe;
}

std::int32_t Bpe::IdOf(std::string_view token) const {
  const auto it = vocab_.find(token);
  return it == vocab_.end() ? -1 : it->second;
}

void Bpe::IndexSymbols() {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    alphabet_ids_[byte] = IdOf(ByteAlphabet()[byte]);
    fallback_ids_[byte] = IdOf(ByteTokenName(static_cast<unsigned char>(byte)));
  }
  for (const auto& [token, id] : vocab_) {
    longest_token_ = std::max(longest_token_, token.size());
    if (options_.symbols == BpeSymbols::kBytes || token.empty()) continue;
    const Utf8Char c = DecodeUtf8(token);
    if (static_cast<std::size_t>(c.length) != token.size()) continue;
    if (character_ids_.size() <= c.code_point) character_ids_.resize(c.code_point + 1, -1);
    character_ids_[c.code_point] = id;
  }
}

Status Bpe::AddMerges(const std::vector<BpeMerge>& merges) {
  merges_.Reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right, rank] = merges[i];
    std::int32_t ids[3];
    const std::string names[3] = {left, right, left + right};
    for (int k = 0; k < 3; ++k) {
      ids[k] = IdOf(names[k]);
      if (ids[k] < 0)
        return InvalidArgument("merge " + std::to_string(i + 1) + " (" + left + " " + right +
                               ") needs the token " + names[k] +
                               ", which is not in the vocabulary");
    }
    merges_.Add(ids[0], ids[1], rank, ids[2]);
    if (options_.symbols == BpeSymbols::kCharacters) pairs_.Add(names[2]);
  }
  return OkStatus();
}

bool Bpe::complete() const {
  const auto all = [](const std::array<std::int32_t, 256>& ids) {
    return std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; });
  };
  if (options_.symbols == BpeSymbols::kBytes && all(alphabet_ids_)) return true;
  return options_.byte_fallback && all(fallback_ids_);
}

// Turns characters into the ids that merging begins with. An unknown character waits until the
// next known one, or the end: byte tokens that come in between go before it, as in `tokenizers`.
class Bpe::SymbolReader {
 public:
  explicit SymbolReader(const Bpe& bpe) : bpe_(bpe) {}

  // `id` is that of the character whose UTF-8 is `utf8`, or -1.
  void Add(std::int32_t id, std::string_view utf8) {
    if (id >= 0) {
      Flush();
      ids_.push_back(id);
      return;
    }
    if (bpe_.options_.byte_fallback && AddBytes(utf8)) return;
    if (!bpe_.options_.fuse_unknown) Flush();
    unknown_ = bpe_.options_.unknown_id.has_value();
  }

  std::vector<std::int32_t> Finish() {
    Flush();
    return std::move(ids_);
  }

 private:
  bool AddBytes(std::string_view utf8) {
    const auto id_of = [&](char byte) {
      return bpe_.fallback_ids_[static_cast<unsigned char>(byte)];
    };
    if (std::any_of(utf8.begin(), utf8.end(), [&](char byte) { return id_of(byte) < 0; }))
      return false;
    for (const char byte : utf8) ids_.push_back(id_of(byte));
    return true;
  }

  void Flush() {
    if (unknown_) ids_.push_back(*bpe_.options_.unknown_id);
    unknown_ = false;
  }

  const Bpe& bpe_;
  std::vector<std::int32_t> ids_;
  bool unknown_ = false;
};

std::vector<std::int32_t> Bpe::InitialIds(std::string_view text) const {
  SymbolReader reader(*this);
  if (options_.symbols == BpeSymbols::kBytes) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      reader.Add(alphabet_ids_[byte], ByteAlphabet()[byte]);
    }
    return reader.Finish();
  }
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    const auto length = static_cast<std::size_t>(c.length);
    reader.Add(CharacterId(c.code_point), text.substr(0, length));
    text.remove_prefix(length);
  }
  return reader.Finish();
}

// Bytes up to the first place that no merge can cross. Unknown characters are not cut off: what
// they become may be merged by tokens that spell something else.
std::size_t Bpe::CutLength(std::string_view text) const {
  Utf8Char left = DecodeUtf8(text);
  std::size_t length = static_cast<std::size_t>(left.length);
  while (length < text.size()) {
    const Utf8Char right = DecodeUtf8(text.substr(length));
    const bool known = CharacterId(left.code_point) >= 0 && CharacterId(right.code_point) >= 0;
    if (known && !pairs_.MayAdjoin(left.code_point, right.code_point)) break;
    length += static_cast<std::size_t>(right.length);
    left = right;
  }
  return length;
}

void Bpe::EncodeCached(std::string_view text, BpeCache* cache,
                       std::vector<std::int32_t>* out) const {
  if (const auto it = cache->find(text); it != cache->end()) {
    out->insert(out->end(), it->second.begin(), it->second.end());
    return;
  }
  std::vector<std::int32_t> ids;
  const bool whole_counts = options_.ignore_merges && options_.symbols == BpeSymbols::kBytes;
  const std::int32_t whole = whole_counts ? IdOf(SpellBytes(text)) : -1;
  if (whole >= 0) {
    ids.push_back(whole);
  } else {
    ids = InitialIds(text);
    merges_.Apply(&ids);
  }
  out->insert(out->end(), ids.begin(), ids.end());
  if (text.size() <= kMaxCachedBytes && cache->size() < kMaxCached)
    cache->emplace(std::string(text), std::move(ids));
}

void Bpe::Encode(std::string_view piece, BpeCache* cache, std::vector<std::int32_t>* out) const {
  if (options_.symbols == BpeSymbols::kBytes) return EncodeCached(piece, cache, out);
  if (options_.ignore_merges && piece.size() <= longest_token_) {
    if (const std::int32_t whole = IdOf(piece); whole >= 0) return out->push_back(whole);
  }
  while (!piece.empty()) {
    const std::size_t length = CutLength(piece);
    EncodeCached(piece.substr(0, length), cache, out);
    piece.remove_prefix(length);
  }
}

}  // namespace muster
