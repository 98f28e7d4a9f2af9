#include "trainer/verbs/scorer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "trainer/verbs/testing/generator_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ScorerTest : public GeneratorTest {
 protected:
  InferenceModel Model() const {
    return std::move(InferenceModel::Load(dir_.path(), at::kFloat).value());
  }
  static std::vector<ScorableRow> Rows() {
    std::vector<ScorableRow> rows;
    for (int r = 0; r < 9; ++r) {
      std::vector<std::int64_t> ids;
      for (int i = 0; i < 3 + 7 * r % 20; ++i) ids.push_back((31 * r + 17 * i) % 320);
      rows.push_back(WholeRow(ids));
    }
    rows[4].labels[0] = -100;
    rows.push_back(WholeRow({5}));  // nothing to score
    return rows;
  }
  static Scorer::Source SourceOf(std::vector<ScorableRow> rows) {
    return [rows, at = std::size_t{0}]() mutable -> Result<std::optional<ScorableRow>> {
      return at < rows.size() ? std::optional(rows[at++]) : std::nullopt;
    };
  }
  static std::vector<RowScore> Scores(InferenceModel& model, std::int64_t batch_tokens) {
    std::vector<RowScore> scores;
    EXPECT_TRUE(
        Scorer(model, batch_tokens)
            .Score(SourceOf(Rows()),
                   [&](const ScorableRow&, const RowScore& score) { scores.push_back(score); })
            .ok());
    return scores;
  }
};

TEST_F(ScorerTest, FollowsItsDefinition) {
  InferenceModel model = Model();
  const std::vector<RowScore> scores = Scores(model, 64);
  const std::vector<ScorableRow> rows = Rows();
  ASSERT_EQ(scores.size(), rows.size());
  for (std::size_t r = 0; r + 1 < rows.size(); ++r) {
    const at::Tensor ids = at::tensor(rows[r].ids, at::kLong).unsqueeze(0);
    const at::Tensor log_probs = model.Logits(ids)[0].log_softmax(1);
    std::size_t scored = 0;
    std::int64_t correct = 0;
    for (std::size_t i = 0; i < rows[r].labels.size(); ++i) {
      if (rows[r].labels[i] < 0) continue;
      const auto row = static_cast<std::int64_t>(i);
      EXPECT_NEAR(scores[r].log_probs[scored++], log_probs[row][rows[r].labels[i]].item<float>(),
                  1e-5);
      correct += log_probs[row].argmax().item<std::int64_t>() == rows[r].labels[i];
    }
    EXPECT_EQ(scores[r].tokens(), static_cast<std::int64_t>(scored));
    EXPECT_EQ(scores[r].correct, correct);
  }
  EXPECT_EQ(scores.back().tokens(), 0);
}

TEST_F(ScorerTest, DoesNotDependOnBatches) {
  InferenceModel model = Model();
  const std::vector<RowScore> alone = Scores(model, 1);
  for (const std::int64_t batch : {20, 50, 10'000}) {
    const std::vector<RowScore> together = Scores(model, batch);
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t r = 0; r < alone.size(); ++r) {
      EXPECT_NEAR(together[r].LossSum(), alone[r].LossSum(), 1e-4) << r;
      EXPECT_EQ(together[r].correct, alone[r].correct) << r;
    }
  }
}

TEST_F(ScorerTest, NamesTheRowOfAnIdThatTheModelLacks) {
  InferenceModel model = Model();
  const Status status = Scorer(model, 64).Score(SourceOf({WholeRow({1, 2}), WholeRow({1, 320})}),
                                                [](const ScorableRow&, const RowScore&) {});
  EXPECT_THAT(status.message(), HasSubstr("row 2: token id 320"));
}

TEST(ScoreTotals, AreOverTokensAndNotOverRows) {
  ScoreTotals totals;
  totals.Add({.log_probs = {-1, -2, -3}, .correct = 1});
  totals.Add({.log_probs = {-6}, .correct = 1});
  EXPECT_EQ(totals.rows, 2);
  EXPECT_EQ(totals.Loss(), 3);
  EXPECT_NEAR(totals.Perplexity(), std::exp(3.0), 1e-9);
  EXPECT_EQ(totals.Accuracy(), 0.5);
}

}  // namespace
}  // namespace muster
