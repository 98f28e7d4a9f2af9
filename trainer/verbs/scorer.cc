#include "trainer/verbs/scorer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trainer/model/loss.h"

namespace muster {

ScorableRow WholeRow(const std::vector<std::int64_t>& ids) {
  ScorableRow row{.ids = ids, .labels = {}};
  if (ids.empty()) return row;
  row.labels.assign(ids.begin() + 1, ids.end());
  row.labels.push_back(-1);
  return row;
}

double RowScore::LossSum() const {
  double sum = 0;
  for (const float log_prob : log_probs) sum -= log_prob;
  return sum;
}

void ScoreTotals::Add(const RowScore& row) {
  ++rows;
  tokens += row.tokens();
  correct += row.correct;
  loss_sum += row.LossSum();
}

double ScoreTotals::Perplexity() const { return std::exp(Loss()); }

Status Scorer::CheckIds(const ScorableRow& row, std::int64_t number) const {
  const std::int64_t size = model_.config().vocab_size;
  const auto bad = std::find_if(row.ids.begin(), row.ids.end(),
                                [size](std::int64_t id) { return id < 0 || id >= size; });
  if (bad == row.ids.end()) return OkStatus();
  return InvalidArgument("row " + std::to_string(number) + ": token id " + std::to_string(*bad) +
                         " is outside the vocabulary of " + std::to_string(size));
}

Status Scorer::Score(const Source& next, const Sink& done) {
  std::vector<ScorableRow> batch;
  std::int64_t longest = 0, number = 0;
  const auto flush = [&] {
    const std::vector<RowScore> scores = ScoreBatch(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) done(batch[i], scores[i]);
    batch.clear();
    longest = 0;
  };
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(std::optional<ScorableRow> row, next());
    if (!row) break;
    MUSTER_RETURN_IF_ERROR(CheckIds(*row, ++number));
    const auto length = static_cast<std::int64_t>(row->ids.size());
    const auto rows = static_cast<std::int64_t>(batch.size()) + 1;
    if (!batch.empty() && rows * std::max(longest, length) > batch_tokens_) flush();
    longest = std::max(longest, length);
    batch.push_back(*std::move(row));
  }
  if (!batch.empty()) flush();
  return OkStatus();
}

std::vector<RowScore> Scorer::ScoreBatch(const std::vector<ScorableRow>& rows) {
  std::size_t length = 0;
  for (const ScorableRow& row : rows) length = std::max(length, row.ids.size());
  std::vector<std::int64_t> ids(rows.size() * length), lengths, places, labels, counts;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    lengths.push_back(static_cast<std::int64_t>(rows[r].ids.size()));
    std::copy(rows[r].ids.begin(), rows[r].ids.end(),
              ids.begin() + static_cast<std::ptrdiff_t>(r * length));
    const std::size_t before = labels.size();
    for (std::size_t i = 0; i < rows[r].labels.size(); ++i) {
      if (rows[r].labels[i] < 0) continue;
      places.push_back(static_cast<std::int64_t>(r * length + i));
      labels.push_back(rows[r].labels[i]);
    }
    counts.push_back(static_cast<std::int64_t>(labels.size() - before));
  }
  std::vector<RowScore> scores(rows.size());
  if (labels.empty()) return scores;
  const auto columns = static_cast<std::int64_t>(length);
  const at::Tensor hidden =
      model_.Hidden(at::tensor(ids, at::kLong).view({-1, columns}), lengths).flatten(0, 1);
  const LabelScores scored = ScoreLabels(hidden.index_select(0, at::tensor(places, at::kLong)),
                                         model_.head(), at::tensor(labels, at::kLong),
                                         model_.config().logits_scaling, model_.config().logit_cap);
  const float* log_prob = scored.log_probs.const_data_ptr<float>();
  const bool* is_best = scored.is_best.const_data_ptr<bool>();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    scores[r].log_probs.assign(log_prob, log_prob + counts[r]);
    scores[r].correct = std::count(is_best, is_best + counts[r], true);
    log_prob += counts[r];
    is_best += counts[r];
  }
  return scores;
}

}  // namespace muster
