#include "cli/jobs/job_questions.h"

#include <gtest/gtest.h>

#include <sstream>

#include "common/job_spec/parse.h"

namespace muster {
namespace {

JobAnswers Asked(const std::string& lines, std::string* said, std::set<std::string> given = {}) {
  std::istringstream in(lines);
  std::ostringstream out;
  JobAnswers answers;
  const Status status = AskQuestions(in, out, given, &answers);
  EXPECT_TRUE(status.ok()) << status.ToString();
  *said = out.str();
  return answers;
}

TEST(JobQuestions, EmptyLinesTakeTheDefaults) {
  std::string said;
  const JobAnswers answers = Asked(std::string(Questions().size(), '\n'), &said);
  EXPECT_EQ(JobText(answers), JobText({}));
  for (const Question& question : Questions())
    EXPECT_NE(said.find(question.text), std::string::npos) << question.key;
}

TEST(JobQuestions, EveryAnswerReachesTheJobFile) {
  std::string said;
  const JobAnswers answers = Asked(
      "llama-chat\nmodels/8b\nrows.bin\nfull\nH100-80\n2\n8\n4096\n64\n1.5\nresults\n", &said);
  const auto spec = ParseJobSpec(JobText(answers));
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->name, "llama-chat");
  EXPECT_EQ(spec->resources.device, "cuda");
  EXPECT_EQ(spec->world_size(), 16);
  EXPECT_EQ(spec->train->model.path, "models/8b");
  EXPECT_EQ(spec->train->data.train, std::vector<std::string>{"rows.bin"});
  EXPECT_EQ(spec->train->data.max_seq_len, 4096);
  EXPECT_EQ(spec->train->batch.accumulation, 4);
  EXPECT_EQ(spec->train->schedule.epochs, 1.5);
  EXPECT_EQ(spec->train->output_dir, "results");
  EXPECT_EQ(NextCommands(answers, "job.yaml"),
            (std::vector<std::string>{"muster-trainer plan job.yaml --device H100-80",
                                      "muster submit job.yaml"}));
}

TEST(JobQuestions, AQuestionMarkHelpsAndANonsenseIsAskedAgain) {
  std::string said;
  std::set<std::string> given;
  for (const Question& question : Questions()) given.insert(question.key);
  given.erase("nodes");
  const JobAnswers answers = Asked("?\nmany\n0\n3\n", &said, given);
  EXPECT_EQ(answers.nodes, 3);
  EXPECT_NE(said.find("All nodes start together."), std::string::npos);
  EXPECT_NE(said.find("from 1 to 16384, got 'many'"), std::string::npos);
}

TEST(JobQuestions, AJobMayHaveAsManyNodesAsACluster) {
  JobAnswers answers;
  EXPECT_TRUE(SetAnswer("nodes", std::to_string(kMaxClusterNodes), &answers).ok());
  EXPECT_EQ(answers.nodes, kMaxClusterNodes);
  EXPECT_FALSE(SetAnswer("nodes", std::to_string(kMaxClusterNodes + 1), &answers).ok());
}

TEST(JobQuestions, AnswersThatEndEarlyAreAnError) {
  std::istringstream in("only-a-name\n");
  std::ostringstream out;
  JobAnswers answers;
  EXPECT_EQ(AskQuestions(in, out, {}, &answers).code(), StatusCode::kCancelled);
}

TEST(JobQuestions, TextsOfEveryKindStayTexts) {
  JobAnswers answers;
  for (const char* text : {"5", "true", "a: b # c", "\"quoted\"", "~"}) {
    answers.model = text;
    const auto spec = ParseJobSpec(JobText(answers));
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->train->model.path, text);
  }
}

TEST(JobQuestions, EveryQuestionCanBeAnsweredAndHasAHelp) {
  for (const Question& question : Questions()) {
    JobAnswers answers;
    EXPECT_FALSE(question.help.empty());
    EXPECT_TRUE(SetAnswer(question.key, AnswerOf(answers, question.key), &answers).ok())
        << question.key;
    EXPECT_FALSE(SetAnswer(question.key, "", &answers).ok()) << question.key;
  }
}

TEST(JobQuestions, AdaptersAreAskedForInTheFile) {
  JobAnswers answers;
  answers.method = "qlora";
  EXPECT_NE(JobText(answers).find("quantization: {kind: nf4}"), std::string::npos);
  answers.method = "lora";
  EXPECT_EQ(JobText(answers).find("quantization"), std::string::npos);
  EXPECT_NE(JobText(answers).find("target_modules"), std::string::npos);
}

}  // namespace
}  // namespace muster
