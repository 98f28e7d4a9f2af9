#include "trainer/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace muster {
namespace {

using Json = nlohmann::json;

// No vocabulary comes near it; the table from ids to tokens is allocated up to the largest id.
constexpr std::int64_t kMaxTokenId = (1 << 24) - 1;
constexpr int kMaxDepth = 8;

// Throughout this file a member of the wrong type throws, and ParseTokenizerJson catches.
const Json& MemberOrNull(const Json& object, const char* key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

bool BoolOr(const Json& object, const char* key, bool fallback) {
  const Json& value = MemberOrNull(object, key);
  return value.is_null() ? fallback : value.get<bool>();
}

std::string TypeOf(const Json& object) {
  const Json& type = MemberOrNull(object, "type");
  return type.is_string() ? type.get<std::string>() : "without a type";
}

Result<std::int32_t> TokenIdOf(const Json& value, const std::string& token) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{kMaxTokenId})
    return InvalidArgument("token " + token + " has the impossible id " + value.dump());
  return value.get<std::int32_t>();
}

Result<TokenMap> ParseVocab(const Json& model) {
  const Json& json = model.at("vocab");
  if (!json.is_object()) return InvalidArgument("model.vocab is no object of tokens and ids");
  TokenMap vocab;
  vocab.reserve(json.size());
  std::unordered_set<std::int32_t> ids;
  for (const auto& [token, value] : json.items()) {
    MUSTER_ASSIGN_OR_RETURN(const std::int32_t id, TokenIdOf(value, token));
    if (!ids.insert(id).second)
      return InvalidArgument("model.vocab gives the id " + std::to_string(id) + " twice");
    vocab.emplace(token, id);
  }
  return vocab;
}

// Each merge is "left right" or ["left", "right"].
Result<std::vector<std::pair<std::string, std::string>>> ParseMerges(const Json& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : model.at("merges")) {
    if (merge.is_array() && merge.size() == 2) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const auto text = merge.get<std::string>();
    const std::size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
      return InvalidArgument("merge " + std::to_string(merges.size() + 1) + " (" + text +
                             ") is no pair of tokens");
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return merges;
}

Status CheckModelKind(const Json& model) {
  // Files of the first GPT-2 conversions leave the type out.
  const bool untyped = !model.contains("type") && model.contains("merges");
  if (!untyped && TypeOf(model) != "BPE")
    return Unimplemented("model " + TypeOf(model) + " is not supported; byte-level BPE is");
  if (BoolOr(model, "byte_fallback", false))
    return Unimplemented("BPE with byte_fallback is not supported; byte-level BPE is");
  const Json& dropout = MemberOrNull(model, "dropout");
  if (!dropout.is_null() && dropout.get<double>() != 0)
    return Unimplemented("BPE with dropout is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& affix = MemberOrNull(model, key);
    if (!affix.is_null() && !affix.get<std::string>().empty())
      return Unimplemented(std::string("BPE with a ") + key + " is not supported");
  }
  return OkStatus();
}

Result<Bpe> ParseModel(const Json& model) {
  MUSTER_RETURN_IF_ERROR(CheckModelKind(model));
  MUSTER_ASSIGN_OR_RETURN(TokenMap vocab, ParseVocab(model));
  MUSTER_ASSIGN_OR_RETURN(const auto merges, ParseMerges(model));
  BpeOptions options;
  options.ignore_merges = BoolOr(model, "ignore_merges", false);
  options.fuse_unknown = BoolOr(model, "fuse_unk", false);
  if (const Json& unknown = MemberOrNull(model, "unk_token"); !unknown.is_null()) {
    const auto it = vocab.find(unknown.get_ref<const std::string&>());
    if (it != vocab.end()) options.unknown_id = it->second;
  }
  return Bpe::Create(std::move(vocab), merges, options);
}

Status ParseNormalizer(const Json& normalizer, int depth, bool* compose) {
  if (normalizer.is_null()) return OkStatus();
  const std::string type = TypeOf(normalizer);
  if (type == "NFC") {
    *compose = true;
    return OkStatus();
  }
  if (type != "Sequence" || depth >= kMaxDepth)
    return Unimplemented("normalizer " + type + " is not supported; NFC is");
  for (const Json& step : normalizer.at("normalizers"))
    MUSTER_RETURN_IF_ERROR(ParseNormalizer(step, depth + 1, compose));
  return OkStatus();
}

// The ids that a template puts before and after its one text.
Status ParseTemplate(const Json& processor, TokenizerParts* parts) {
  bool after_text = false;
  for (const Json& piece : processor.at("single")) {
    if (piece.contains("Sequence")) {
      if (after_text) return Unimplemented("post_processor repeats the text");
      after_text = true;
      continue;
    }
    const auto name = piece.at("SpecialToken").at("id").get<std::string>();
    for (const Json& value : processor.at("special_tokens").at(name).at("ids")) {
      MUSTER_ASSIGN_OR_RETURN(const std::int32_t id, TokenIdOf(value, name));
      (after_text ? parts->suffix_ids : parts->prefix_ids).push_back(id);
    }
  }
  if (!after_text) return InvalidArgument("post_processor has a template without the text");
  return OkStatus();
}

Status ParsePostProcessor(const Json& processor, int depth, TokenizerParts* parts) {
  if (processor.is_null()) return OkStatus();
  const std::string type = TypeOf(processor);
  if (type == "ByteLevel") return OkStatus();  // concerns offsets only
  if (type == "TemplateProcessing") {
    if (!parts->prefix_ids.empty() || !parts->suffix_ids.empty())
      return Unimplemented("post_processor has more than one template");
    return ParseTemplate(processor, parts);
  }
  if (type != "Sequence" || depth >= kMaxDepth)
    return Unimplemented("post_processor " + type +
                         " is not supported; TemplateProcessing and ByteLevel are");
  for (const Json& step : processor.at("processors"))
    MUSTER_RETURN_IF_ERROR(ParsePostProcessor(step, depth + 1, parts));
  return OkStatus();
}

Status CheckDecoder(const Json& decoder) {
  if (decoder.is_null() || TypeOf(decoder) == "ByteLevel") return OkStatus();
  if (TypeOf(decoder) != "Sequence")
    return Unimplemented("decoder " + TypeOf(decoder) + " is not supported; ByteLevel is");
  for (const Json& step : decoder.at("decoders"))
    if (TypeOf(step) != "ByteLevel")
      return Unimplemented("decoder " + TypeOf(step) + " is not supported; ByteLevel is");
  return OkStatus();
}

Status ParseAddedTokens(const Json& list, TokenizerParts* parts) {
  if (list.is_null()) return OkStatus();
  for (const Json& json : list) {
    AddedToken token;
    token.content = json.at("content").get<std::string>();
    MUSTER_ASSIGN_OR_RETURN(token.id, TokenIdOf(json.at("id"), token.content));
    token.special = BoolOr(json, "special", false);
    token.normalized = BoolOr(json, "normalized", !token.special);
    token.single_word = BoolOr(json, "single_word", false);
    token.lstrip = BoolOr(json, "lstrip", false);
    token.rstrip = BoolOr(json, "rstrip", false);
    const auto known = parts->bpe.vocab().find(token.content);
    if (known != parts->bpe.vocab().end() && known->second != token.id)
      return InvalidArgument("added token " + token.content + " has the id " +
                             std::to_string(token.id) + ", but the vocabulary gives it " +
                             std::to_string(known->second));
    parts->added_tokens.push_back(std::move(token));
  }
  return OkStatus();
}

Result<TokenizerParts> ParseParts(const Json& json) {
  if (!json.is_object() || !MemberOrNull(json, "model").is_object())
    return InvalidArgument("there is no tokenizer model in it");
  // A normalizer tells most foreign kinds apart, so it is named before the pre-tokenizer is.
  MUSTER_ASSIGN_OR_RETURN(Bpe bpe, ParseModel(json["model"]));
  bool compose = false;
  MUSTER_RETURN_IF_ERROR(ParseNormalizer(MemberOrNull(json, "normalizer"), 0, &compose));
  MUSTER_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                          PreTokenizer::Create(MemberOrNull(json, "pre_tokenizer")));
  TokenizerParts parts{std::move(bpe), std::move(pre_tokenizer), {}, compose, {}, {}};
  MUSTER_RETURN_IF_ERROR(CheckDecoder(MemberOrNull(json, "decoder")));
  MUSTER_RETURN_IF_ERROR(ParsePostProcessor(MemberOrNull(json, "post_processor"), 0, &parts));
  MUSTER_RETURN_IF_ERROR(ParseAddedTokens(MemberOrNull(json, "added_tokens"), &parts));
  return parts;
}

}  // namespace

Result<TokenizerParts> ParseTokenizerJson(std::string_view text, const std::string& origin) {
  try {
    auto parts = ParseParts(Json::parse(text));
    if (!parts.ok()) return parts.status().WithContext(origin);
    return parts;
  } catch (const Json::exception& error) {
    return InvalidArgument(origin + " is not a valid tokenizer: " + error.what());
  }
}

}  // namespace muster
