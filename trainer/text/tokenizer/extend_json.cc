#include "trainer/text/tokenizer/extend_json.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/json.h"
#include "trainer/text/tokenizer/tokenizer.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kAddedTokens[] = "added_tokens";
constexpr char kDecoder[] = "added_tokens_decoder";
// What transformers writes of a token beside its text, in both files.
constexpr const char* kDecoderKeys[] = {"content", "lstrip",      "normalized",
                                        "rstrip",  "single_word", "special"};

Result<OrderedJson> ParseObject(std::string_view text, const std::string& origin) {
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument(origin + " is not valid JSON");
  if (!json.is_object()) return InvalidArgument(origin + " holds no JSON object");
  return json;
}

// The list of added tokens of a file that Tokenizer::Parse has accepted.
OrderedJson& AddedTokensOf(OrderedJson& file) {
  OrderedJson& list = file[kAddedTokens];
  if (list.is_null()) list = OrderedJson::array();
  return list;
}

// Before the first of a larger id: the list ascends.
void Insert(const NewToken& token, std::int32_t id, OrderedJson* list) {
  const auto place = std::find_if(list->begin(), list->end(), [id](const OrderedJson& other) {
    return other.at("id").get<std::int64_t>() > id;
  });
  list->insert(place, OrderedJson{{"id", id},
                                  {"content", token.content},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", !token.special},
                                  {"special", token.special}});
}

Status CheckContent(const NewToken& token) {
  if (token.content.empty()) return InvalidArgument("a new token without a text");
  if (ReplaceInvalidUtf8(token.content) != token.content)
    return InvalidArgument("a new token that is not UTF-8: " + ReplaceInvalidUtf8(token.content));
  return OkStatus();
}

}  // namespace

Result<ExtendedTokenizer> ExtendTokenizerJson(std::string_view json,
                                              const std::vector<NewToken>& tokens,
                                              const std::string& origin) {
  MUSTER_ASSIGN_OR_RETURN(const Tokenizer before, Tokenizer::Parse(json, origin));
  MUSTER_ASSIGN_OR_RETURN(OrderedJson file, ParseObject(json, origin));
  ExtendedTokenizer extended{.vocab_size = before.vocab_size()};
  for (const NewToken& token : tokens) {
    MUSTER_RETURN_IF_ERROR(CheckContent(token).WithContext(origin));
    const std::optional<std::int32_t> known = before.TokenId(token.content);
    const bool repeated = std::any_of(
        extended.added.begin(), extended.added.end(),
        [&](const ExtendedTokenizer::Id& other) { return other.content == token.content; });
    if (repeated || (known && before.IsAddedToken(*known))) continue;
    const std::int32_t id = known ? *known : extended.vocab_size++;
    Insert(token, id, &AddedTokensOf(file));
    extended.added.push_back({token.content, id});
  }
  extended.json = extended.added.empty() ? std::string(json) : file.dump(2);
  // What the new tokens do to the others: one that a normalizer leaves nothing of is refused.
  MUSTER_RETURN_IF_ERROR(Tokenizer::Parse(extended.json, origin).status());
  return extended;
}

Result<std::string> ExtendTokenizerConfig(std::string_view config, std::string_view tokenizer_json,
                                          const std::string& origin) {
  MUSTER_ASSIGN_OR_RETURN(OrderedJson file, ParseObject(config, origin));
  MUSTER_ASSIGN_OR_RETURN(OrderedJson tokenizer, ParseObject(tokenizer_json, "tokenizer.json"));
  OrderedJson& decoder = file[kDecoder];
  if (decoder.is_null()) decoder = OrderedJson::object();
  if (!decoder.is_object())
    return InvalidArgument(origin + ": " + kDecoder + " is no object of ids and tokens");
  for (const OrderedJson& token : AddedTokensOf(tokenizer)) {
    const std::string id = std::to_string(token.at("id").get<std::int64_t>());
    if (decoder.contains(id)) continue;
    OrderedJson entry;
    for (const char* key : kDecoderKeys) {
      entry[key] = token.contains(key) ? token.at(key) : OrderedJson(false);
    }
    decoder[id] = std::move(entry);
  }
  return file.dump(2) + "\n";
}

}  // namespace muster
