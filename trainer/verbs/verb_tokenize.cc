#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/hub_id.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

int Fail(const std::string& message) {
  std::fprintf(stderr, "muster-trainer tokenize: %s\n", message.c_str());
  return kExitBadInput;
}

int TokenizeRows(std::istream& in, const std::string& name, const Tokenizer& tokenizer) {
  std::string line;
  for (long number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("text") || !row["text"].is_string()) {
      return Fail(name + ":" + std::to_string(number) + ": expected an object with \"text\"");
    }
    const std::vector<std::int32_t> ids = tokenizer.Encode(row["text"].get<std::string>());
    const nlohmann::ordered_json answer = {{"ids", ids}, {"decoded", tokenizer.Decode(ids)}};
    std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  std::cout.flush();
  return kExitOk;
}

}  // namespace

int RunTokenize(const TokenizeOptions& options) {
  const Result<std::string> model = ResolveModel(options.model);
  if (!model.ok()) return Fail(model.status().message());
  const Result<Tokenizer> tokenizer = Tokenizer::Load(*model);
  if (!tokenizer.ok()) return Fail(tokenizer.status().message());
  if (options.file.empty()) return TokenizeRows(std::cin, "standard input", *tokenizer);
  std::ifstream file(options.file);
  if (!file) return Fail(options.file + ": cannot be opened");
  return TokenizeRows(file, options.file, *tokenizer);
}

}  // namespace muster
