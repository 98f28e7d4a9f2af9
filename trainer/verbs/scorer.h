// Scorer: what a model says about given tokens, row after row, in bounded memory.
//
// Rows are put together into batches of a bounded number of positions; how they are batched changes
// no more than the order of sums. Owned by one verb; one thread. Torch exceptions pass through.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/base/result.h"
#include "trainer/model/inference.h"

namespace muster {

struct ScorableRow {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> labels;  // one per id: the id that follows it; negative: not scored
};

// The ids of a row of which each but the first is scored.
ScorableRow WholeRow(const std::vector<std::int64_t>& ids);

struct RowScore {
  std::vector<float> log_probs;  // of the labels that are scored, natural logarithm
  std::int64_t correct = 0;      // labels that the model finds most likely

  std::int64_t tokens() const { return static_cast<std::int64_t>(log_probs.size()); }
  double LossSum() const;
};

// Over all rows so far.
struct ScoreTotals {
  std::int64_t rows = 0;
  std::int64_t tokens = 0;
  std::int64_t correct = 0;
  double loss_sum = 0;

  void Add(const RowScore& row);
  double Loss() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0; }
  double Perplexity() const;
  double Accuracy() const {
    return tokens > 0 ? static_cast<double>(correct) / static_cast<double>(tokens) : 0;
  }
};

class Scorer {
 public:
  // Nothing: there are no more rows.
  using Source = std::function<Result<std::optional<ScorableRow>>()>;
  using Sink = std::function<void(const ScorableRow&, const RowScore&)>;

  // A batch has at most `batch_tokens` positions, padding included; a longer row is one alone.
  Scorer(InferenceModel& model, std::int64_t batch_tokens)
      : model_(model), batch_tokens_(batch_tokens) {}

  // kInvalidArgument names an id that the model lacks, with its row, from 1. The sink gets the rows
  // in their order.
  Status Score(const Source& next, const Sink& done);

 private:
  Status CheckIds(const ScorableRow& row, std::int64_t number) const;
  std::vector<RowScore> ScoreBatch(const std::vector<ScorableRow>& rows);

  InferenceModel& model_;
  const std::int64_t batch_tokens_;
};

}  // namespace muster
