#include "common/slurm/sbatch_options.h"

#include <gtest/gtest.h>

namespace muster::slurm {
namespace {

std::vector<SbatchOption> Batch(const std::vector<std::string>& words) {
  const auto options = SbatchOptions::Parse(words);
  EXPECT_TRUE(options.ok()) << options.status().ToString();
  return options.ok() ? options->batch() : std::vector<SbatchOption>();
}

std::string ErrorOf(const std::vector<std::string>& words) {
  const auto options = SbatchOptions::Parse(words);
  return options.ok() ? "no error" : options.status().message();
}

TEST(SbatchOptions, AreReadInAllForms) {
  EXPECT_EQ(Batch({"--partition=gpu", "--qos", "high", "-N4", "-t", "2:00:00", "-x=n1", "--hold"}),
            std::vector<SbatchOption>({{"partition", "gpu"},
                                       {"qos", "high"},
                                       {"nodes", "4"},
                                       {"time", "2:00:00"},
                                       {"exclude", "n1"},
                                       {"hold", std::nullopt}}));
  // A site's own, and one whose value is empty or holds what looks like an option.
  EXPECT_EQ(
      Batch({"--bb=capacity=1TB access=striped", "-Z", "1", "--constraint=", "--mail-user=-x"}),
      std::vector<SbatchOption>({{"bb", "capacity=1TB access=striped"},
                                 {"Z", "1"},
                                 {"constraint", ""},
                                 {"mail-user", "-x"}}));
  EXPECT_TRUE(Batch({}).empty());
}

TEST(SbatchOptions, ForContainersAreForTheStep) {
  const auto options = SbatchOptions::Parse(
      {"--container-image=nvcr.io#nvidia/pytorch:24.05", "--container-mounts=/a:/b", "-p", "x"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->step(),
            std::vector<SbatchOption>({{"container-image", "nvcr.io#nvidia/pytorch:24.05"},
                                       {"container-mounts", "/a:/b"}}));
  EXPECT_EQ(options->batch(), std::vector<SbatchOption>({{"partition", "x"}}));
  EXPECT_TRUE(options->Has({"qos", "partition"}));
  EXPECT_FALSE(options->Has({"container-image"}));
  EXPECT_EQ(options->ValueOf("partition"), "x");
}

TEST(SbatchOptions, ThatCannotWorkAreRefusedWithWhatToDo) {
  EXPECT_NE(ErrorOf({"--array=1-4"}).find("slurm/array.sbatch"), std::string::npos);
  EXPECT_NE(ErrorOf({"-a", "1-4"}).find("--array cannot be given here"), std::string::npos);
  EXPECT_NE(ErrorOf({"--ntasks-per-node=8"}).find("one supervisor"), std::string::npos);
  EXPECT_EQ(ErrorOf({"--ntasks-per-node=1"}), "no error");
  EXPECT_NE(ErrorOf({"--gpus-per-task=1"}).find("splits"), std::string::npos);
  EXPECT_NE(ErrorOf({"other.yaml"}).find("'other.yaml' is no option of sbatch"), std::string::npos);
  EXPECT_NE(ErrorOf({"--qos", "high", "low"}).find("'low'"), std::string::npos);
  EXPECT_NE(ErrorOf({"--a b=c"}).find("is no option"), std::string::npos);
  EXPECT_NE(ErrorOf({"-"}).find("'-'"), std::string::npos);
  EXPECT_NE(ErrorOf({"--"}).find("'--'"), std::string::npos);
}

TEST(SbatchOptions, TakeTheSignalsAtWhichAJobIsSaved) {
  for (const char* good :
       {"USR2", "USR1@600", "B:USR1@45", "RB:usr2@60", "R:SIGTERM@90", "B:10@60", "12@60", "15"})
    EXPECT_EQ(ErrorOf({std::string("--signal=") + good}), "no error") << good;
  for (const char* bad : {"B:HUP@60", "INT@60", "B:9@60", "2", "B:", "@60", "USR", ""})
    EXPECT_NE(ErrorOf({std::string("--signal=") + bad}).find("write --signal=USR2@SECONDS"),
              std::string::npos)
        << bad;
  EXPECT_NE(ErrorOf({"--signal"}).find("--signal-lead"), std::string::npos);
}

TEST(Directives, HoldTextAsSbatchReadsIt) {
  EXPECT_EQ(*Directive({"nodes", "2-3"}), "#SBATCH --nodes=2-3");
  EXPECT_EQ(*Directive({"requeue", std::nullopt}), "#SBATCH --requeue");
  EXPECT_EQ(*Directive({"Z", "1"}), "#SBATCH -Z 1");
  EXPECT_EQ(*Directive({"exclude", "n[1-3,7]"}), "#SBATCH --exclude=n[1-3,7]");
  EXPECT_EQ(*Directive({"comment", "a \"b\" #c"}), "#SBATCH --comment='a \"b\" #c'");
  EXPECT_EQ(*Directive({"comment", "it's"}), "#SBATCH --comment=\"it's\"");
  EXPECT_EQ(*Directive({"constraint", ""}), "#SBATCH --constraint=''");
  for (const char* bad : {"a\nb", "a\\b", "'\"", "\t"})
    EXPECT_EQ(Directive({"comment", bad}).status().code(), StatusCode::kInvalidArgument) << bad;
}

TEST(ShellQuoted, LeavesPlainWordsAsTheyAre) {
  EXPECT_EQ(ShellQuoted("/a/b-c.d=e"), "/a/b-c.d=e");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(ShellQuoted("a b"), "'a b'");
  EXPECT_EQ(ShellQuoted("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuoted("~x"), "'~x'");
}

}  // namespace
}  // namespace muster::slurm
