#include "trainer/text/tokenizer/tokenizer_json.h"

#include <set>
#include <unordered_set>
#include <utility>

#include "trainer/text/tokenizer/json_fields.h"

namespace muster {
namespace {

// A member of the wrong type throws FieldError, which InPart catches.

Result<std::int32_t> TokenIdOf(const Json& value, const std::string& token) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{kMaxTokenId})
    return InvalidArgument("token " + token + " has the impossible id " + value.dump());
  return value.get<std::int32_t>();
}

Result<TokenMap> ParseVocab(const Json& model) {
  const Json& json = Member(model, "vocab");
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
Result<std::vector<BpeMerge>> ParseMerges(const Json& model) {
  std::vector<BpeMerge> merges;
  for (const Json& merge : ListOf(model, "merges")) {
    const auto rank = static_cast<std::int32_t>(merges.size());
    if (merge.is_array() && merge.size() == 2) {
      if (!merge[0].is_string() || !merge[1].is_string())
        return InvalidArgument("merge " + std::to_string(rank + 1) + " is no pair of tokens");
      merges.push_back({merge[0].get<std::string>(), merge[1].get<std::string>(), rank});
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : merge.dump();
    const std::size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
      return InvalidArgument("merge " + std::to_string(rank + 1) + " (" + text +
                             ") is no pair of tokens");
    merges.push_back({text.substr(0, blank), text.substr(blank + 1), rank});
  }
  return merges;
}

Status CheckModelKind(const Json& model) {
  // Files of the first GPT-2 conversions leave the type out.
  const bool untyped = !model.contains("type") && model.contains("merges");
  if (!untyped && TypeOf(model) != "BPE")
    return Unimplemented("model " + TypeOf(model) + " is not supported; BPE is");
  const Json& dropout = MemberOrNull(model, "dropout");
  if (!dropout.is_null() && dropout != 0) return Unimplemented("BPE with dropout is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& affix = MemberOrNull(model, key);
    if (!affix.is_null() && affix != "")
      return Unimplemented(std::string("BPE with a ") + key + " is not supported");
  }
  return OkStatus();
}

Result<Bpe> ParseModel(const Json& model, BpeSymbols symbols) {
  MUSTER_ASSIGN_OR_RETURN(TokenMap vocab, ParseVocab(model));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, ParseMerges(model));
  BpeOptions options;
  options.symbols = symbols;
  options.ignore_merges = BoolOr(model, "ignore_merges", false);
  options.byte_fallback = BoolOr(model, "byte_fallback", false);
  options.fuse_unknown = BoolOr(model, "fuse_unk", false);
  std::string missing_unknown;
  if (!MemberOrNull(model, "unk_token").is_null()) {
    const std::string& token = StringOf(model, "unk_token");
    if (const auto it = vocab.find(token); it != vocab.end())
      options.unknown_id = it->second;
    else
      missing_unknown = token;
  }
  MUSTER_ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(std::move(vocab), merges, options));
  if (!missing_unknown.empty() && !bpe.complete())
    return InvalidArgument("model.unk_token " + missing_unknown + " is not in the vocabulary");
  return bpe;
}

// The ids that a template puts before and after its one text.
Status ParseTemplate(const Json& processor, TokenizerParts* parts) {
  bool after_text = false;
  for (const Json& piece : ListOf(processor, "single")) {
    if (piece.contains("Sequence")) {
      if (after_text) return Unimplemented("post_processor repeats the text");
      after_text = true;
      continue;
    }
    const std::string& name = StringOf(Member(piece, "SpecialToken"), "id");
    const Json& token = Member(Member(processor, "special_tokens"), name.c_str());
    for (const Json& value : ListOf(token, "ids")) {
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
  if (type != "Sequence" || depth >= kMaxStepDepth)
    return Unimplemented("post_processor " + type +
                         " is not supported; TemplateProcessing and ByteLevel are");
  for (const Json& step : ListOf(processor, "processors"))
    MUSTER_RETURN_IF_ERROR(ParsePostProcessor(step, depth + 1, parts));
  return OkStatus();
}

Status ParseAddedTokens(const Json& file, TokenizerParts* parts) {
  if (MemberOrNull(file, "added_tokens").is_null()) return OkStatus();
  for (const Json& json : ListOf(file, "added_tokens")) {
    AddedToken token;
    token.content = StringOf(json, "content");
    MUSTER_ASSIGN_OR_RETURN(token.id, TokenIdOf(Member(json, "id"), token.content));
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

// A model has no row for an id that no token has.
Status CheckTemplateIds(const TokenizerParts& parts) {
  std::set<std::int32_t> ids(parts.prefix_ids.begin(), parts.prefix_ids.end());
  ids.insert(parts.suffix_ids.begin(), parts.suffix_ids.end());
  for (const AddedToken& token : parts.added_tokens) ids.erase(token.id);
  if (ids.empty()) return OkStatus();
  for (const auto& [token, id] : parts.bpe.vocab()) ids.erase(id);
  if (ids.empty()) return OkStatus();
  return InvalidArgument("post_processor puts the id " + std::to_string(*ids.begin()) +
                         " beside the text, which no token has");
}

// What the parts say of each other.
Status CheckTogether(const TokenizerParts& parts) {
  // A normalizer moves the places that the reference implementation then asks for.
  if (parts.pre_tokenizer.needs_position() && !parts.normalizer.empty())
    return Unimplemented(
        "pre_tokenizer Metaspace with the prepend_scheme first after a normalizer is not "
        "supported");
  for (const AddedToken& token : parts.added_tokens)
    if (token.normalized && !token.content.empty() && parts.normalizer.Run(token.content).empty())
      return Unimplemented("added token " + token.content + " is normalized to nothing");
  return CheckTemplateIds(parts);
}

// What `parse` gives; where it throws, the error names this part of the file.
template <typename Parse>
auto InPart(const char* part, const Parse& parse) -> decltype(parse()) {
  try {
    return parse();
  } catch (const FieldError& error) {
    return InvalidArgument(std::string(part) + ": " + error.what());
  }
}

Result<TokenizerParts> ParseParts(const Json& json) {
  if (!json.is_object() || !MemberOrNull(json, "model").is_object())
    return InvalidArgument("there is no tokenizer model in it");
  MUSTER_RETURN_IF_ERROR(InPart("model", [&] { return CheckModelKind(json["model"]); }));
  MUSTER_ASSIGN_OR_RETURN(Normalizer normalizer, InPart("normalizer", [&] {
                            return Normalizer::Create(MemberOrNull(json, "normalizer"));
                          }));
  MUSTER_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, InPart("pre_tokenizer", [&] {
                            return PreTokenizer::Create(MemberOrNull(json, "pre_tokenizer"));
                          }));
  const auto symbols = pre_tokenizer.byte_level() ? BpeSymbols::kBytes : BpeSymbols::kCharacters;
  MUSTER_ASSIGN_OR_RETURN(Bpe bpe,
                          InPart("model", [&] { return ParseModel(json["model"], symbols); }));
  MUSTER_ASSIGN_OR_RETURN(Decoder decoder, InPart("decoder", [&] {
                            return Decoder::Create(MemberOrNull(json, "decoder"));
                          }));
  TokenizerParts parts{std::move(bpe),
                       std::move(normalizer),
                       std::move(pre_tokenizer),
                       std::move(decoder),
                       {},
                       {},
                       {}};
  MUSTER_RETURN_IF_ERROR(InPart("post_processor", [&] {
    return ParsePostProcessor(MemberOrNull(json, "post_processor"), 0, &parts);
  }));
  MUSTER_RETURN_IF_ERROR(InPart("added_tokens", [&] { return ParseAddedTokens(json, &parts); }));
  MUSTER_RETURN_IF_ERROR(CheckTogether(parts));
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
