#include <ATen/ATen.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/hub_id.h"
#include "trainer/model/inference.h"
#include "trainer/model/loss.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

using Row = std::vector<std::int64_t>;

struct ScoredRow {
  Row ids;
  std::vector<float> log_probs;  // of ids[1], ids[2], ...
};

Result<std::vector<Row>> ReadIds(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, std::int64_t{1} << 30));
  std::istringstream lines(text);
  std::vector<Row> rows;
  std::string line;
  for (long number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const auto is_integer = [](const nlohmann::json& item) { return item.is_number_integer(); };
    if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_integer)) {
      return InvalidArgument(path + ":" + std::to_string(number) +
                             ": expected one JSON array of token ids");
    }
    rows.push_back(json.get<Row>());
  }
  return rows;
}

// One row per window of the model's context.
Result<std::vector<Row>> ReadText(const ScoreOptions& options, std::int64_t window) {
  MUSTER_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(options.model));
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.text, std::int64_t{1} << 30));
  const std::vector<std::int32_t> ids = tokenizer.Encode(text);
  std::vector<Row> rows;
  for (std::size_t at = 0; at < ids.size(); at += window) {
    const std::size_t end = std::min(ids.size(), at + window);
    rows.emplace_back(ids.begin() + at, ids.begin() + end);
  }
  return rows;
}

Result<ScoredRow> Score(InferenceModel& model, const Row& ids) {
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= model.config().vocab_size) {
      return InvalidArgument("token id " + std::to_string(id) + " is outside the vocabulary of " +
                             std::to_string(model.config().vocab_size));
    }
  }
  ScoredRow row{.ids = ids};
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length < 2) return row;
  const at::Tensor tensor = at::tensor(ids, at::kLong);
  const at::Tensor hidden = model.Hidden(tensor.narrow(0, 0, length - 1).unsqueeze(0)).squeeze(0);
  const at::Tensor log_probs =
      LabelLogProbs(hidden, model.head(), tensor.narrow(0, 1, length - 1)).contiguous();
  const float* first = log_probs.const_data_ptr<float>();
  row.log_probs.assign(first, first + length - 1);
  return row;
}

Result<std::vector<ScoredRow>> ScoreAll(const ScoreOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(InferenceModel model, InferenceModel::Load(options.model, at::kFloat));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Row> rows,
                          options.ids.empty()
                              ? ReadText(options, model.config().max_position_embeddings)
                              : ReadIds(options.ids));
  std::vector<ScoredRow> scored;
  for (const Row& row : rows) {
    MUSTER_ASSIGN_OR_RETURN(ScoredRow result, Score(model, row));
    scored.push_back(std::move(result));
  }
  return scored;
}

void Print(const std::vector<ScoredRow>& rows, const std::string& output) {
  double sum = 0;
  std::int64_t tokens = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ScoredRow& row : rows) {
    for (const float log_prob : row.log_probs) sum -= log_prob;
    tokens += static_cast<std::int64_t>(row.log_probs.size());
    list.push_back({{"ids", row.ids}, {"logprobs", row.log_probs}});
  }
  const double mean = tokens > 0 ? sum / static_cast<double>(tokens) : 0.0;
  if (output == "json") {
    const nlohmann::ordered_json json = {
        {"mean_loss", mean}, {"tokens", tokens}, {"rows", std::move(list)}};
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::printf("mean loss %.6f over %lld tokens\n", mean, static_cast<long long>(tokens));
  for (const ScoredRow& row : rows) {
    for (std::size_t i = 0; i < row.log_probs.size(); ++i) {
      std::printf("%8lld  %10.6f\n", static_cast<long long>(row.ids[i + 1]), row.log_probs[i]);
    }
  }
}

}  // namespace

int RunScore(const ScoreOptions& given) {
  ScoreOptions options = given;
  Result<std::string> model = ResolveModel(options.model);
  if (model.ok()) options.model = *model;
  const Result<std::vector<ScoredRow>> rows =
      model.ok() ? ScoreAll(options) : Result<std::vector<ScoredRow>>(model.status());
  if (!rows.ok()) {
    std::fprintf(stderr, "muster-trainer score: %s\n", rows.status().message().c_str());
    return kExitBadInput;
  }
  Print(*rows, options.output);
  return kExitOk;
}

}  // namespace muster
