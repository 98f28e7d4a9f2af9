#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>

#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/hub_id.h"
#include "trainer/text/tokenizer/tokenizer.h"
#include "trainer/verbs/text_rows.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TokenPrinter {
 public:
  TokenPrinter(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  void Text(const std::string& text) {
    const std::vector<std::int32_t> ids =
        tokenizer_.Encode(text, {.add_special_tokens = options_.special_tokens});
    ++rows_;
    tokens_ += static_cast<std::int64_t>(ids.size());
    if (options_.count) return;
    Json json = {{"ids", ids}, {"decoded", tokenizer_.Decode(ids)}};
    if (options_.pieces) {
      json["pieces"] = Json::array();
      for (const std::int32_t id : ids) json["pieces"].push_back(tokenizer_.TokenText(id));
    }
    std::cout << Dumped(json) << '\n';
  }

  void End() const {
    if (options_.count) std::cout << Dumped({{"rows", rows_}, {"tokens", tokens_}}) << '\n';
    std::cout.flush();
  }

 private:
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  std::int64_t rows_ = 0;
  std::int64_t tokens_ = 0;
};

Status TokenizeLines(const std::string& name, TokenPrinter& printer) {
  std::ifstream file;
  if (!name.empty()) {
    file.open(name);
    if (!file) return NotFound(name + ": cannot be opened");
  }
  std::istream& in = name.empty() ? std::cin : file;
  for (std::string line; std::getline(in, line);) printer.Text(line);
  return OkStatus();
}

Status Tokenize(const TokenizeOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::string model, ResolveModel(options.model));
  MUSTER_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(model));
  TokenPrinter printer(tokenizer, options);
  if (options.text) {
    printer.Text(*options.text);
  } else if (options.plain) {
    MUSTER_RETURN_IF_ERROR(TokenizeLines(options.file, printer));
  } else {
    const Status read =
        ForEachText(options.file, "text", [&](const std::string& text) { printer.Text(text); });
    if (read.code() == StatusCode::kInvalidArgument)
      return InvalidArgument(read.message() + " (--plain takes lines of text)");
    MUSTER_RETURN_IF_ERROR(read);
  }
  printer.End();
  return OkStatus();
}

}  // namespace

int RunTokenize(const TokenizeOptions& options) {
  const Status status = Tokenize(options);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "muster-trainer tokenize: %s\n", status.message().c_str());
  return kExitBadInput;
}

}  // namespace muster
