#include <ATen/Parallel.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/hub/hub_id.h"
#include "trainer/inputs/load_rows.h"
#include "trainer/text/tokenizer/tokenizer.h"
#include "trainer/verbs/scorer.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;

// One JSON array of ids per line.
Scorer::Source IdRows(const std::string& path, std::shared_ptr<std::ifstream> file) {
  return [path, file, number = 0L]() mutable -> Result<std::optional<ScorableRow>> {
    std::string line;
    do {
      if (!std::getline(*file, line)) return std::optional<ScorableRow>();
      ++number;
    } while (line.empty());
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const auto is_integer = [](const nlohmann::json& item) { return item.is_number_integer(); };
    if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_integer)) {
      return InvalidArgument(path + ":" + std::to_string(number) +
                             ": expected one JSON array of token ids");
    }
    return std::optional(WholeRow(json.get<std::vector<std::int64_t>>()));
  };
}

// One row per window of the model's context.
Result<Scorer::Source> TextRows(const std::string& path, const Tokenizer& tokenizer,
                                std::int64_t window) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
  const std::vector<std::int32_t> ids = tokenizer.Encode(text);
  return Scorer::Source(
      [ids, window, at = std::size_t{0}]() mutable -> Result<std::optional<ScorableRow>> {
        if (at >= ids.size()) return std::optional<ScorableRow>();
        const std::size_t end = std::min(ids.size(), at + static_cast<std::size_t>(window));
        const std::vector<std::int64_t> row(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                            ids.begin() + static_cast<std::ptrdiff_t>(end));
        at = end;
        return std::optional(WholeRow(row));
      });
}

// A data file of training; what it trains on is scored.
Scorer::Source DatasetRows(std::shared_ptr<const Dataset> rows) {
  return [rows, row = std::int64_t{0}]() mutable -> Result<std::optional<ScorableRow>> {
    if (row >= rows->size()) return std::optional<ScorableRow>();
    const auto length = static_cast<std::size_t>(rows->Length(row));
    ScorableRow read{.ids = std::vector<std::int64_t>(length),
                     .labels = std::vector<std::int64_t>(length)};
    MUSTER_RETURN_IF_ERROR(rows->Read(row++, read.ids, read.labels));
    return std::optional(std::move(read));
  };
}

// As a job would read them, but into memory.
Result<std::shared_ptr<const Dataset>> OpenData(const ScoreOptions& options,
                                                const ModelConfig& config) {
  JobSpec job;
  job.workdir = "";
  job.resources.cpus_per_rank = options.threads > 0 ? options.threads : at::get_num_threads();
  job.train.emplace();
  job.train->data.train = options.data;
  job.train->data.max_seq_len = options.max_seq_len;
  job.train->data.chat_template = options.chat_template;
  if (!options.chat_date.empty() && !NoonOf(options.chat_date))
    return InvalidArgument("--chat-date: " + options.chat_date + " is no day such as 2026-01-31");
  job.train->data.chat_date = options.chat_date;
  job.train->data.text_field = options.text_field;
  job.train->data.cache = "none";
  TrainResult<LoadedRows> rows = LoadRows(job, options.model, config, {});
  if (!rows.ok()) return rows.status().status();
  return std::shared_ptr<const Dataset>(std::move(rows->train));
}

Result<Scorer::Source> OpenSource(const ScoreOptions& options, const ModelConfig& config) {
  if (!options.data.empty()) {
    MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> rows, OpenData(options, config));
    return DatasetRows(std::move(rows));
  }
  if (!options.ids.empty()) {
    auto file = std::make_shared<std::ifstream>(options.ids);
    if (!*file) return NotFound(options.ids + ": cannot be opened");
    return IdRows(options.ids, std::move(file));
  }
  MUSTER_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(options.model));
  return TextRows(options.text, tokenizer,
                  std::min<std::int64_t>(options.max_seq_len, config.ContextLength()));
}

// Writes rows as they come, so that a file of any length needs no memory.
class ScorePrinter {
 public:
  ScorePrinter(bool json, std::string details) : json_(json), details_(std::move(details)) {
    if (json_) std::printf("{\"rows\": [");
  }

  void Row(const ScorableRow& row, const RowScore& score) {
    totals_.Add(score);
    if (details_ == "none") return;
    if (!json_) return PrintRow(row, score);
    ScoreTotals of_row;
    of_row.Add(score);
    Json json = {{"row", totals_.rows},
                 {"tokens", of_row.tokens},
                 {"loss", of_row.Loss()},
                 {"accuracy", of_row.Accuracy()}};
    if (details_ == "tokens") {
      json["ids"] = row.ids;
      json["logprobs"] = score.log_probs;
    }
    std::printf("%s%s", totals_.rows > 1 ? ",\n" : "\n", json.dump().c_str());
  }

  void End() const {
    if (json_) {
      const Json json = {{"count", totals_.rows},
                         {"tokens", totals_.tokens},
                         {"mean_loss", totals_.Loss()},
                         {"perplexity", totals_.Perplexity()},
                         {"accuracy", totals_.Accuracy()}};
      std::printf("\n],\n%s\n", json.dump().substr(1).c_str());
      return;
    }
    std::printf("mean loss %.6f, perplexity %.4f, accuracy %.4f over %lld tokens of %lld rows\n",
                totals_.Loss(), totals_.Perplexity(), totals_.Accuracy(),
                static_cast<long long>(totals_.tokens), static_cast<long long>(totals_.rows));
  }

  bool is_finite() const { return totals_.tokens == 0 || std::isfinite(totals_.Loss()); }

 private:
  void PrintRow(const ScorableRow& row, const RowScore& score) const {
    const double tokens = std::max<double>(1, static_cast<double>(score.tokens()));
    std::printf("row %lld: mean loss %.6f, accuracy %.4f over %lld tokens\n",
                static_cast<long long>(totals_.rows), score.LossSum() / tokens,
                static_cast<double>(score.correct) / tokens,
                static_cast<long long>(score.tokens()));
    if (details_ != "tokens") return;
    std::size_t scored = 0;
    for (const std::int64_t label : row.labels) {
      if (label < 0) continue;
      std::printf("%8lld  %10.6f\n", static_cast<long long>(label), score.log_probs[scored++]);
    }
  }

  const bool json_;
  const std::string details_;
  ScoreTotals totals_;
};

Status Score(const ScoreOptions& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  const at::ScalarType type = options.type == "bfloat16" ? at::kBFloat16 : at::kFloat;
  MUSTER_ASSIGN_OR_RETURN(InferenceModel model,
                          InferenceModel::Load(options.model, type, options.adapter));
  MUSTER_ASSIGN_OR_RETURN(const Scorer::Source source, OpenSource(options, model.config()));
  std::int64_t left = options.limit > 0 ? options.limit : std::numeric_limits<std::int64_t>::max();
  const Scorer::Source limited = [&]() -> Result<std::optional<ScorableRow>> {
    return left-- > 0 ? source() : Result<std::optional<ScorableRow>>(std::optional<ScorableRow>());
  };
  const bool json = options.output == "json";
  std::string details = options.details;
  if (details.empty()) details = !json ? "none" : options.data.empty() ? "tokens" : "rows";
  ScorePrinter printer(json, details);
  MUSTER_RETURN_IF_ERROR(Scorer(model, options.batch_tokens)
                             .Score(limited, [&](const ScorableRow& row, const RowScore& score) {
                               printer.Row(row, score);
                             }));
  printer.End();
  if (printer.is_finite()) return OkStatus();
  return DataLoss(
      "the mean loss is not finite: the model has weights that are not, or whose products are not "
      "in "
      "--dtype " +
      options.type + "; float32 shows which");
}

}  // namespace

int RunScore(const ScoreOptions& given) {
  ScoreOptions options = given;
  Result<std::string> model = ResolveModel(options.model);
  if (model.ok()) options.model = *std::move(model);
  const Status status = model.ok() ? Score(options) : model.status();
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "muster-trainer score: %s\n", status.message().c_str());
  return kExitBadInput;
}

}  // namespace muster
