#include "trainer/text/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "common/base/files.h"
#include "trainer/text/tokenizer/byte_tokens.h"
#include "trainer/text/tokenizer/charsmap.h"
#include "trainer/text/tokenizer/json_fields.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

constexpr char kMark[] = "\u2581";
constexpr std::int64_t kMaxFileBytes = 256 << 20;
constexpr std::size_t kMaxPieceBytes = 1024;  // SentencePiece itself makes none of more than 256

std::string NameOf(std::size_t id, const SentencePiece& piece) {
  return "piece " + std::to_string(id) + " (" + piece.text + ")";
}

bool IsOneCharacter(const std::string& text) {
  return static_cast<std::size_t>(DecodeUtf8(text).length) == text.size();
}

Status CheckKind(const SentencePieceFile& file) {
  constexpr const char* kKinds[] = {"Unigram", "BPE", "words", "characters"};
  if (file.model_type < 1 || file.model_type > 4)
    return InvalidArgument("model_type is " + std::to_string(file.model_type));
  if (file.model_type != 2)
    return Unimplemented(std::string("a SentencePiece model of the kind ") +
                         kKinds[file.model_type - 1] + " is not supported; BPE is");
  if (file.whitespace_as_suffix)
    return Unimplemented("treat_whitespace_as_suffix is not supported");
  // A text of characters that are all replaced by nothing would be a prefix alone.
  if (!file.charsmap.empty() && file.add_dummy_prefix && !file.remove_extra_whitespaces)
    return Unimplemented(
        "precompiled_charsmap with add_dummy_prefix but without remove_extra_whitespaces is not "
        "supported");
  const bool user_defined =
      std::any_of(file.pieces.begin(), file.pieces.end(),
                  [](const SentencePiece& piece) { return piece.type == PieceType::kUserDefined; });
  // SentencePiece leaves what is user-defined unmapped.
  if (!file.charsmap.empty() && user_defined)
    return Unimplemented("precompiled_charsmap with user-defined pieces is not supported");
  if (file.pieces.size() > std::size_t{kMaxTokenId})
    return InvalidArgument("there are " + std::to_string(file.pieces.size()) + " pieces");
  return OkStatus();
}

Status CheckPiece(std::size_t id, const SentencePiece& piece) {
  switch (piece.type) {
    case PieceType::kNormal:
      if (piece.text.size() > kMaxPieceBytes)
        return InvalidArgument("piece " + std::to_string(id) + " has " +
                               std::to_string(piece.text.size()) + " bytes");
      return OkStatus();
    case PieceType::kUserDefined:
      if (piece.text.find(' ') != std::string::npos)
        return Unimplemented(NameOf(id, piece) + " is user-defined and has a blank in it");
      return OkStatus();
    case PieceType::kUnused:
      return Unimplemented(NameOf(id, piece) + " is of the type UNUSED, which is not supported");
    case PieceType::kUnknown:
    case PieceType::kControl:
      if (IsOneCharacter(piece.text))
        return Unimplemented(
            NameOf(id, piece) +
            " is a single character, but stands for no text; this is not supported");
      return OkStatus();
    case PieceType::kByte:
      if (!ByteOfToken(piece.text) || ByteTokenName(*ByteOfToken(piece.text)) != piece.text)
        return InvalidArgument(NameOf(id, piece) + " is of the type BYTE, but names none");
      return OkStatus();
  }
  return InvalidArgument(NameOf(id, piece) + " is of the unknown type " +
                         std::to_string(static_cast<std::int64_t>(piece.type)));
}

// Ids of all pieces, and the one for what is unknown.
Result<TokenMap> VocabOf(const SentencePieceFile& file, BpeOptions* options) {
  TokenMap vocab;
  vocab.reserve(file.pieces.size());
  std::size_t bytes = 0;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    MUSTER_RETURN_IF_ERROR(CheckPiece(id, piece));
    if (!vocab.emplace(piece.text, static_cast<std::int32_t>(id)).second)
      return InvalidArgument(NameOf(id, piece) + " is there twice");
    bytes += piece.type == PieceType::kByte;
    if (piece.type != PieceType::kUnknown) continue;
    if (options->unknown_id)
      return InvalidArgument(NameOf(id, piece) + " is a second one of the type UNKNOWN");
    options->unknown_id = static_cast<std::int32_t>(id);
  }
  if (!options->unknown_id) return InvalidArgument("no piece is of the type UNKNOWN");
  if (bytes != (file.byte_fallback ? 256u : 0u))
    return InvalidArgument(
        std::to_string(bytes) + " pieces are of the type BYTE, but " +
        (file.byte_fallback ? "byte_fallback needs 256" : "there is no fallback"));
  return vocab;
}

// SentencePiece merges neighbours whose texts make a piece together, best score first. Said in
// pairs: each place where a piece can be cut into two pieces is a merge, with a rank by score.
class MergeList {
 public:
  explicit MergeList(const SentencePieceFile& file) : file_(file) {
    for (const SentencePiece& piece : file.pieces) {
      types_.emplace(piece.text, piece.type);
      if (piece.type == PieceType::kNormal) ranks_.emplace(-piece.score, 0);
    }
    std::int32_t rank = 0;
    for (auto& entry : ranks_) entry.second = rank++;
  }

  Result<std::vector<BpeMerge>> Make() {
    for (std::size_t id = 0; id < file_.pieces.size(); ++id)
      if (file_.pieces[id].type == PieceType::kNormal)
        MUSTER_RETURN_IF_ERROR(AddPiece(id, file_.pieces[id]));
    return std::move(merges_);
  }

 private:
  Status AddPiece(std::size_t id, const SentencePiece& piece) {
    const std::string_view text = piece.text;
    for (std::size_t at = 0; at < text.size();) {
      const auto length = static_cast<std::size_t>(DecodeUtf8(text.substr(at)).length);
      // Such a piece can be made of a character that is unknown by itself.
      if (!types_.contains(text.substr(at, length)))
        return Unimplemented(NameOf(id, piece) + " has the character " +
                             std::string(text.substr(at, length)) + ", which is no piece");
      if (at > 0 && IsNormal(text.substr(0, at)) && IsNormal(text.substr(at)))
        merges_.push_back({std::string(text.substr(0, at)), std::string(text.substr(at)),
                           ranks_.at(-piece.score)});
      at += length;
    }
    return OkStatus();
  }

  // User-defined pieces are never part of others: they are found before anything is merged.
  bool IsNormal(std::string_view text) const {
    const auto it = types_.find(text);
    return it != types_.end() && it->second == PieceType::kNormal;
  }

  const SentencePieceFile& file_;
  std::unordered_map<std::string_view, PieceType> types_;
  std::map<float, std::int32_t> ranks_;  // by falling score
  std::vector<BpeMerge> merges_;
};

Result<Normalizer> NormalizerOf(const SentencePieceFile& file) {
  namespace step = normalizer_step;
  std::vector<NormalizerStep> steps;
  if (!file.charsmap.empty()) {
    MUSTER_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(file.charsmap));
    steps.emplace_back(step::MapCharacters{std::move(map)});
  }
  const std::string mark = file.escape_whitespaces ? kMark : " ";
  if (file.remove_extra_whitespaces) steps.emplace_back(step::CollapseBlanks{});
  if (file.add_dummy_prefix) steps.emplace_back(step::Prepend{mark});
  if (file.escape_whitespaces) steps.emplace_back(step::Replace{TextReplacement(" ", mark)});
  if (file.remove_extra_whitespaces) steps.emplace_back(step::TrimEnd{mark});
  return Normalizer(std::move(steps));
}

Decoder DecoderOf(const SentencePieceFile& file) {
  namespace step = decoder_step;
  std::vector<DecoderStep> steps;
  if (file.add_dummy_prefix || file.remove_extra_whitespaces)
    steps.emplace_back(step::DropFirstMarks{kMark, file.remove_extra_whitespaces});
  steps.emplace_back(step::Replace{TextReplacement(kMark, " ")});
  steps.emplace_back(step::ByteFallback{step::ByteFallback::Broken::kBytes});
  return Decoder(std::move(steps));
}

std::vector<AddedToken> AddedTokensOf(const SentencePieceFile& file) {
  std::vector<AddedToken> tokens;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    const bool user_defined = piece.type == PieceType::kUserDefined;
    if (!user_defined && piece.type != PieceType::kControl && piece.type != PieceType::kUnknown)
      continue;
    AddedToken token;
    token.id = static_cast<std::int32_t>(id);
    token.content = piece.text;
    token.special = !user_defined;
    token.normalized = token.as_is = user_defined;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Result<Json> ReadJson(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return InvalidArgument(path + " is no JSON object");
  return json;
}

// Such tokens are split off by rules that depend on the program that saved them.
Status CheckAddedTokens(const std::string& path, const TokenizerParts& parts) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  for (const auto& [token, id] : json.items()) {
    const auto known = parts.bpe.vocab().find(token);
    if (known == parts.bpe.vocab().end() || id != known->second)
      return Unimplemented(path + " adds the token " + token +
                           " to tokenizer.model; save the tokenizer as tokenizer.json");
  }
  return OkStatus();
}

Status AddTemplate(const std::string& path, const SentencePieceFile& file, TokenizerParts* parts) {
  bool add_bos = true;
  bool add_eos = false;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    MUSTER_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
    try {
      add_bos = BoolOr(json, "add_bos_token", true);
      add_eos = BoolOr(json, "add_eos_token", false);
    } catch (const FieldError& wrong) {
      return InvalidArgument(path + ": " + wrong.what());
    }
  }
  const auto exists = [&](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(file.pieces.size());
  };
  if (add_bos && exists(file.bos_id))
    parts->prefix_ids.push_back(static_cast<std::int32_t>(file.bos_id));
  if (add_eos && exists(file.eos_id))
    parts->suffix_ids.push_back(static_cast<std::int32_t>(file.eos_id));
  return OkStatus();
}

}  // namespace

Result<TokenizerParts> PartsOfSentencePiece(const SentencePieceFile& file) {
  MUSTER_RETURN_IF_ERROR(CheckKind(file));
  BpeOptions options;
  options.symbols = BpeSymbols::kCharacters;
  options.byte_fallback = file.byte_fallback;
  options.fuse_unknown = true;
  MUSTER_ASSIGN_OR_RETURN(TokenMap vocab, VocabOf(file, &options));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, MergeList(file).Make());
  MUSTER_ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(std::move(vocab), merges, options));
  MUSTER_ASSIGN_OR_RETURN(Normalizer normalizer, NormalizerOf(file));
  return TokenizerParts{
      std::move(bpe), std::move(normalizer), {}, DecoderOf(file), AddedTokensOf(file), {}, {}};
}

Result<TokenizerParts> LoadSentencePiece(const std::string& dir) {
  const std::string path = dir + "/tokenizer.model";
  MUSTER_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
  const Result<SentencePieceFile> file = ParseSentencePieceFile(bytes);
  if (!file.ok()) return file.status().WithContext(path);
  Result<TokenizerParts> parts = PartsOfSentencePiece(*file);
  if (!parts.ok()) return parts.status().WithContext(path);
  MUSTER_RETURN_IF_ERROR(CheckAddedTokens(dir + "/added_tokens.json", *parts));
  MUSTER_RETURN_IF_ERROR(AddTemplate(dir + "/tokenizer_config.json", *file, &*parts));
  return parts;
}

}  // namespace muster
