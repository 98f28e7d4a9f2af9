// What `muster complete` offers, against a coordinator that answers from a script.

#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

class CompletionTest : public CommandsTest {
 protected:
  // The candidates, without what they are.
  std::vector<std::string> Offered(std::vector<std::string> words) {
    words.insert(words.begin(), "complete");
    out_.str("");
    const CommandResult result = Run(std::move(words));
    EXPECT_TRUE(result.ok() && *result == kExitSuccess);
    std::vector<std::string> offered;
    std::istringstream lines(out_.str());
    for (std::string line; std::getline(lines, line);)
      offered.push_back(line.substr(0, line.find('\t')));
    return offered;
  }
};

TEST_F(CompletionTest, OffersVerbsAndTheirGroups) {
  EXPECT_EQ(Offered({"unh"}), std::vector<std::string>{});
  EXPECT_EQ(Offered({"und"}), std::vector<std::string>{"undrain"});
  EXPECT_EQ(out_.str(), "undrain\tReturn a drained or quarantined node to service\n");
  EXPECT_EQ(Offered({"--dir", "x", "certs", ""}),
            (std::vector<std::string>{"issue", "join-token", "list", "revoke"}));
  EXPECT_THAT(Offered({""}), testing::Not(testing::Contains("complete")));
}

TEST_F(CompletionTest, OffersTheFlagsOfTheVerbAndOfTheProgram) {
  EXPECT_EQ(Offered({"get", "--l"}), std::vector<std::string>{"--limit"});
  EXPECT_EQ(Offered({"get", "--slurm"}), std::vector<std::string>{"--slurm-job"});
  EXPECT_EQ(Offered({"run", "--coord"}), std::vector<std::string>{})
      << "`muster run` passes it on to torchrun";
}

TEST_F(CompletionTest, OffersTheWordsThatAFlagAccepts) {
  const std::vector<std::string> json = {"json", "jsonl"};
  EXPECT_EQ(Offered({"get", "--all", "-o", "js"}), json);
  EXPECT_EQ(Offered({"get", "-o", "=", "js"}), json) << "as bash cuts -o=js";
  EXPECT_EQ(Offered({"get", "--output", "="}).size(), std::size(kOutputFormats));
  EXPECT_EQ(Offered({"get", "--output=js"}),
            (std::vector<std::string>{"--output=json", "--output=jsonl"}));
}

TEST_F(CompletionTest, OffersJobsByIdAndName) {
  Serve();
  coordinator_.job.set_name("llama-chat");
  const std::string id = coordinator_.job.id();
  const std::vector<std::string> both = {id, "llama-chat"};
  EXPECT_EQ(Offered({"logs", "-f", ""}), both);
  EXPECT_EQ(Offered({"hold", id, ""}), both) << "it takes several";
  EXPECT_EQ(Offered({"cancel", "llama"}), std::vector<std::string>{"llama-chat"});
  EXPECT_EQ(out_.str().find("llama-chat\t" + id + ", "), 0u) << out_.str();
  EXPECT_EQ(Offered({"attach", id, ""}), std::vector<std::string>{}) << "it takes one";
  EXPECT_EQ(Offered({"slurm", "attach", ""}), std::vector<std::string>{}) << "Slurm's jobs";
}

TEST_F(CompletionTest, OffersNodes) {
  Serve();
  coordinator_.node.set_name("node-2");
  coordinator_.node.set_state(v1::NODE_STATE_READY);
  EXPECT_EQ(Offered({"drain", ""}), std::vector<std::string>{"node-2"});
  EXPECT_EQ(out_.str(), "node-2\tready\n");
  EXPECT_EQ(Offered({"fault", "--node=node"}), std::vector<std::string>{"--node=node-2"});
}

TEST_F(CompletionTest, IsSilentWithoutACoordinator) {
  EXPECT_EQ(Offered({"logs", ""}), std::vector<std::string>{});
  EXPECT_EQ(Offered({"drain", ""}), std::vector<std::string>{});
  EXPECT_EQ(err_.str(), "");
}

TEST_F(CompletionTest, LeavesFilesToTheShell) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"complete", "submit", "job"},
        {"complete", "--tls", ""},
        {"complete", "run", "--nproc-per-node", "2", "train"}}) {
    const CommandResult result = Run(words);
    EXPECT_TRUE(result.ok() && *result == kExitError) << words.back();
    EXPECT_EQ(out_.str(), "");
  }
}

TEST(UnfinishedCommandLine, SaysWhichCoordinatorIsAsked) {
  std::vector<std::string> words = {"muster", "complete", "--dir", "/d", "get", "--all", "-o", ""};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  EXPECT_EQ(ParseCommandLine(static_cast<int>(argv.size()), argv.data()).global.dir, "/d");
}

}  // namespace
}  // namespace muster
