#include "trainer/verbs/text_generator.h"

#include <fstream>
#include <limits>
#include <vector>

#include "trainer/verbs/testing/generator_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class TextGeneratorTest : public GeneratorTest {
 protected:
  static Generated Run(TextGenerator& generator, const std::string& prompt,
                       const GenerationSettings& settings) {
    return std::move(generator.Run(Ids(generator, prompt), settings, Ignore).value());
  }
  // Varied, and long enough to stop within.
  static GenerationSettings Drawing(std::int64_t tokens) {
    return {.sampling = {.temperature = 1, .top_k = 40, .seed = 5}, .max_new_tokens = tokens};
  }
  // The head is the last tensor of the file.
  void WriteLastRowsOfHead(const std::vector<float>& rows) const {
    std::fstream file(dir_ / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    const auto bytes = static_cast<std::streamoff>(rows.size() * sizeof(float));
    file.seekp(-bytes, std::ios::end);
    file.write(reinterpret_cast<const char*>(rows.data()), bytes);
  }
};

TEST_F(TextGeneratorTest, RepeatsItselfForASeed) {
  TextGenerator generator = Load(), other = Load();
  const Generated first = Run(generator, "Hello", Drawing(60));
  EXPECT_EQ(first.ids, Run(generator, "Hello", Drawing(60)).ids) << "the cache changes nothing";
  EXPECT_EQ(first.ids, Run(other, "Hello", Drawing(60)).ids);
  GenerationSettings another = Drawing(60);
  another.sampling.seed = 6;
  EXPECT_NE(first.ids, Run(generator, "Hello", another).ids);
}

TEST_F(TextGeneratorTest, KnowsTheBeginningThatTwoPromptsShare) {
  TextGenerator generator = Load(), fresh = Load();
  Run(generator, "The sea is wide", Drawing(20));
  const Generated next = Run(generator, "The sea is deep", Drawing(20));
  EXPECT_EQ(next.reused_tokens, 11);
  EXPECT_EQ(next.prompt_tokens, 15);
  EXPECT_EQ(next.ids, Run(fresh, "The sea is deep", Drawing(20)).ids);
}

TEST_F(TextGeneratorTest, ABatchGoesOnAsEachPromptAloneInTheirOrder) {
  TextGenerator generator = Load(), alone = Load();
  const std::vector<std::string> texts = {"Hello", "The sea is wide and deep", "a", "Once",
                                          "12 + 3"};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& text : texts) prompts.push_back(Ids(generator, text));
  GenerationSettings settings = Drawing(40);
  settings.stops = {"e"};  // so that they are of different lengths
  for (const std::size_t batch : {1, 2, 3, 16}) {
    std::vector<Generated> made;
    const Status status = generator.RunAll(prompts, settings, batch, [&](const Generated& each) {
      made.push_back(each);
      return true;
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(made.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      GenerationSettings own = settings;
      own.sampling.seed += i;
      const Generated expected = Run(alone, texts[i], own);
      EXPECT_EQ(made[i].ids, expected.ids) << "batch " << batch << ", prompt " << i;
      EXPECT_EQ(made[i].text, expected.text);
      EXPECT_EQ(made[i].reason, expected.reason);
    }
  }
}

TEST_F(TextGeneratorTest, ABatchRefusesAPromptBeforeItBeginsAndEndsWhenItsReaderDoes) {
  TextGenerator generator = Load();
  int done = 0;
  const auto count = [&](const Generated&) { return ++done < 2; };
  const Status refused = generator.RunAll({Ids(generator, "a"), {}}, Drawing(4), 16, count);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("prompt 2"));
  EXPECT_EQ(done, 0);
  const std::vector<std::vector<std::int32_t>> three(3, Ids(generator, "a"));
  EXPECT_TRUE(generator.RunAll(three, Drawing(4), 1, count).ok());
  EXPECT_EQ(done, 2);
}

TEST_F(TextGeneratorTest, StreamsTheTextThatItReturns) {
  TextGenerator generator = Load();
  std::string streamed;
  const auto made = generator.Run(Ids(generator, "Hello"), Drawing(80), [&](std::string_view text) {
    streamed += text;
    return true;
  });
  EXPECT_EQ(streamed, made->text);
  EXPECT_EQ(made->text, generator.tokenizer().Decode(made->ids, {.skip_special_tokens = true}));
}

TEST_F(TextGeneratorTest, EndsBeforeAStop) {
  TextGenerator generator = Load();
  const std::string text = Run(generator, "Hello", Drawing(80)).text;
  ASSERT_GT(text.size(), 30u);
  GenerationSettings settings = Drawing(80);
  settings.stops = {"never in there", text.substr(20, 5)};
  const Generated made = Run(generator, "Hello", settings);
  EXPECT_EQ(made.reason, FinishReason::kStop);
  EXPECT_EQ(made.text, text.substr(0, text.find(settings.stops[1])));
}

TEST_F(TextGeneratorTest, EndsWhereTheModelEndsTheText) {
  TextGenerator generator = Load();
  GenerationSettings settings{.sampling = {.temperature = 5, .seed = 1}, .max_new_tokens = 180};
  Generated made;
  for (; settings.sampling.seed < 50; ++settings.sampling.seed) {
    made = Run(generator, "Hello", settings);
    if (made.reason == FinishReason::kEndOfText) break;
  }
  EXPECT_EQ(made.reason, FinishReason::kEndOfText);
  EXPECT_LT(made.ids.size(), 180u);
  for (const std::int32_t id : made.ids) {
    EXPECT_NE(id, kEndOfTextId);
    EXPECT_LT(id, kByteVocabSize) << "a row that only pads the embedding";
  }
}

TEST_F(TextGeneratorTest, EndsWithTheContextOfTheModel) {
  TextGenerator generator = Load();
  GenerationSettings settings{.max_new_tokens = 1000};
  const Generated made = Run(generator, std::string(190, 'x'), settings);
  EXPECT_EQ(made.reason, FinishReason::kContext);
  EXPECT_EQ(made.ids.size(), 11u) << "the last one need not be looked back at";
  settings.max_new_tokens = 4;
  EXPECT_EQ(Run(generator, std::string(190, 'x'), settings).reason, FinishReason::kLength);
}

TEST_F(TextGeneratorTest, EndsWhenNobodyListens) {
  TextGenerator generator = Load();
  int pieces = 0;
  const auto made = generator.Run(Ids(generator, "Hello"), Drawing(80),
                                  [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(made->reason, FinishReason::kInterrupted);
  EXPECT_EQ(pieces, 3);
}

TEST_F(TextGeneratorTest, RefusesAPromptThatTheModelCannotTake) {
  TextGenerator generator = Load();
  const auto refusal = [&](const std::vector<std::int32_t>& ids) {
    return std::string(generator.Run(ids, {}, Ignore).status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal({7, 320}), HasSubstr("token id 320, outside the model's vocabulary of 320"));
  EXPECT_THAT(refusal(std::vector<std::int32_t>(201, 7)),
              HasSubstr("201 tokens, and the model's context (max_position_embeddings) is 200"));
}

TEST_F(TextGeneratorTest, SaysThatWeightsAreDamaged) {
  WriteLastRowsOfHead(std::vector<float>(100 * 32, std::numeric_limits<float>::quiet_NaN()));
  TextGenerator generator = Load();
  const auto made = generator.Run(Ids(generator, "Hello"), Drawing(5), Ignore);
  EXPECT_EQ(made.status().code(), StatusCode::kDataLoss);
}

// One infinite weight in a row makes its logit infinite and no NaN; half of the rows get +inf
// whatever sign the hidden state has.
TEST_F(TextGeneratorTest, SaysThatLogitsAreInfinite) {
  std::vector<float> rows(100 * 32, 0.0f);
  for (std::size_t row = 0; row < 100; ++row) {
    rows[row * 32] = (row % 2 == 0 ? 1 : -1) * std::numeric_limits<float>::infinity();
  }
  WriteLastRowsOfHead(rows);
  TextGenerator generator = Load();
  GenerationSettings settings = Drawing(5);
  settings.sampling.top_p = 0.9;
  const auto made = generator.Run(Ids(generator, "Hello"), settings, Ignore);
  EXPECT_EQ(made.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(made.status().message(), HasSubstr("infinite"));
}

TEST_F(TextGeneratorTest, RefusesATypeThatIsNone) {
  EXPECT_THAT(TextGenerator::Load(dir_.path(), "int3").status().message(),
              HasSubstr("there is no type int3"));
  EXPECT_TRUE(TextGenerator::Load(dir_.path(), "bfloat16").ok());
}

}  // namespace
}  // namespace muster
