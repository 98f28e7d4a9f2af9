#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>

#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/hub_id.h"
#include "trainer/text/tokenizer/tokenizer.h"
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

Status TokenizeRows(std::istream& in, const std::string& name, const TokenizeOptions& options,
                    TokenPrinter& printer) {
  std::string line;
  for (long number = 1; std::getline(in, line); ++number) {
    if (options.plain) {
      printer.Text(line);
      continue;
    }
    if (line.empty()) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("text") || !row["text"].is_string()) {
      return InvalidArgument(name + ":" + std::to_string(number) +
                             ": expected an object with \"text\" (--plain takes lines of text)");
    }
    printer.Text(row["text"].get<std::string>());
  }
  return OkStatus();
}

Status Tokenize(const TokenizeOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::string model, ResolveModel(options.model));
  MUSTER_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(model));
  TokenPrinter printer(tokenizer, options);
  if (options.text) {
    printer.Text(*options.text);
  } else if (options.file.empty()) {
    MUSTER_RETURN_IF_ERROR(TokenizeRows(std::cin, "standard input", options, printer));
  } else {
    std::ifstream file(options.file);
    if (!file) return NotFound(options.file + ": cannot be opened");
    MUSTER_RETURN_IF_ERROR(TokenizeRows(file, options.file, options, printer));
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
