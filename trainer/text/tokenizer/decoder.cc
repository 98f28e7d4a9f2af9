#include "trainer/text/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "trainer/text/tokenizer/byte_alphabet.h"
#include "trainer/text/tokenizer/byte_tokens.h"
#include "trainer/text/tokenizer/json_fields.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

namespace step = decoder_step;

using Tokens = std::vector<std::string>;

constexpr char kReplacementCharacter[] = "\xef\xbf\xbd";

std::string Joined(const Tokens& tokens, std::string_view between = "") {
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    out.append(i == 0 ? std::string_view() : between).append(tokens[i]);
  return out;
}

Tokens Apply(const step::ByteLevel&, const Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += UnspellBytes(token);
  return {ReplaceInvalidUtf8(bytes)};
}

Tokens Apply(const step::Replace& step, Tokens tokens) {
  for (std::string& token : tokens) token = step.replacement.Run(token);
  return tokens;
}

// The text of a run of byte tokens.
std::string TextOfBytes(std::string_view bytes, step::ByteFallback::Broken broken) {
  std::string out;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Char c = DecodeUtf8(rest);
    const auto length = c.valid ? static_cast<std::size_t>(c.length) : 1;
    if (c.valid) {
      out.append(rest.substr(0, length));
    } else if (broken == step::ByteFallback::Broken::kBytes) {
      out.append(kReplacementCharacter);
    } else {
      out.clear();
      for (std::size_t i = 0; i < bytes.size(); ++i) out.append(kReplacementCharacter);
      return out;
    }
    rest.remove_prefix(length);
  }
  return out;
}

Tokens Apply(const step::ByteFallback& step, const Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto end_run = [&] {
    if (!run.empty()) out.push_back(TextOfBytes(run, step.broken));
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = ByteOfToken(token)) {
      run += static_cast<char>(*byte);
    } else {
      end_run();
      out.push_back(token);
    }
  }
  end_run();
  return out;
}

Tokens Apply(const step::Fuse&, const Tokens& tokens) { return {Joined(tokens)}; }

Tokens Apply(const step::Strip& step, Tokens tokens) {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (std::size_t i = 0; i < step.start && rest.starts_with(step.character); ++i)
      rest.remove_prefix(step.character.size());
    for (std::size_t i = 0; i < step.stop && rest.ends_with(step.character); ++i)
      rest.remove_suffix(step.character.size());
    token = std::string(rest);
  }
  return tokens;
}

Tokens Apply(const step::Metaspace& step, Tokens tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = ReplaceAll(tokens[i], step.mark, i == 0 && step.drop_in_first ? "" : " ");
  return tokens;
}

Tokens Apply(const step::DropFirstMarks& step, Tokens tokens) {
  for (std::string& token : tokens) {
    const bool marked = token.starts_with(step.mark);
    if (marked) token.erase(0, step.mark.size());
    if (!token.empty() || (marked && !step.all)) break;
  }
  return tokens;
}

}  // namespace

Result<Decoder> Decoder::Create(const Json& json) {
  Decoder decoder;
  decoder.blanks_between_ = json.is_null();
  if (!json.is_null()) MUSTER_RETURN_IF_ERROR(decoder.AddStep(json, 0));
  return decoder;
}

Status Decoder::AddStep(const Json& json, int depth) {
  const std::string type = TypeOf(json);
  if (type == "Sequence" && depth < kMaxStepDepth) {
    for (const Json& part : ListOf(json, "decoders"))
      MUSTER_RETURN_IF_ERROR(AddStep(part, depth + 1));
    return OkStatus();
  }
  if (type == "Strip") return AddStrip(json);
  if (type == "Metaspace") return AddMetaspace(json);
  if (type == "Replace") {
    MUSTER_ASSIGN_OR_RETURN(TextReplacement replacement, TextReplacement::Create(json));
    steps_.emplace_back(step::Replace{std::move(replacement)});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(step::ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(step::ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(step::Fuse{});
  } else {
    return Unimplemented("decoder " + type +
                         " is not supported; ByteLevel, Replace, ByteFallback, Fuse, Strip, "
                         "Metaspace and Sequence are");
  }
  return OkStatus();
}

Status Decoder::AddStrip(const Json& json) {
  step::Strip strip;
  strip.character = CharacterOf(json, "content");
  for (const auto& [key, count] :
       {std::pair("start", &strip.start), std::pair("stop", &strip.stop)}) {
    const Json& value = Member(json, key);
    if (!value.is_number_unsigned())
      return InvalidArgument(std::string("decoder Strip has a ") + key + " that is no count");
    *count = value.get<std::size_t>();
  }
  steps_.emplace_back(std::move(strip));
  return OkStatus();
}

Status Decoder::AddMetaspace(const Json& json) {
  step::Metaspace metaspace;
  metaspace.mark = CharacterOf(json, "replacement");
  MUSTER_ASSIGN_OR_RETURN(const std::string scheme, MetaspaceSchemeOf(json));
  metaspace.drop_in_first = scheme != "never";
  steps_.emplace_back(std::move(metaspace));
  return OkStatus();
}

std::string Decoder::Run(Tokens tokens) const {
  for (const DecoderStep& step : steps_)
    tokens = std::visit([&](const auto& kind) { return Apply(kind, std::move(tokens)); }, step);
  return Joined(tokens, blanks_between_ ? " " : "");
}

}  // namespace muster
